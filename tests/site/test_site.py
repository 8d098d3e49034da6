"""The site: its search finds what a reader asks first, and its pages stay short."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

MOST_WORDS = 55_000


def test_the_pages_have_no_more_words_than_a_reader_has_patience(repository: Path) -> None:
    pages = [repository / "README.md", repository / "CONTRIBUTING.md", *(repository / "docs").rglob("*.md")]
    assert sum(len(page.read_text(encoding="utf-8").split()) for page in pages) <= MOST_WORDS


@pytest.fixture(scope="module")
def site(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    process = subprocess.run(command, cwd=repository, capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr
    return folder


@pytest.mark.slow
@pytest.mark.parametrize(
    ("query", "first"),
    [
        ("install", "install/"),
        ("cancel a run", "how-to/when_a_training_goes_wrong/#cancel-a-run"),
        ("column names", "reference/ingestion/"),
        ("out of memory", "how-to/slow_or_out_of_memory/"),
        ("schedule", "tutorials/first_schedule/"),
    ],
)
def test_the_search_finds_first(query: str, first: str, site: Path) -> None:
    assert search(site, query)[query][0].startswith(first)


@pytest.mark.slow
def test_no_search_for_words_of_titles_or_their_beginnings_fails(site: Path) -> None:
    """lunr confuses some words with many digits, and then answers nothing to whatever begins like them."""
    documents = json.loads((site / "search" / "search_index.json").read_text(encoding="utf-8"))["docs"]
    words = {word.lower() for each in documents for word in re.findall(r"[A-Za-z]{2,}", each["title"])}
    assert len(words) > 300
    search(site, *words, *{word[:length] for word in words for length in (1, 2, 3)})


def search(site: Path, *queries: str) -> dict[str, list[str]]:
    """Query → the addresses found, best first, by the worker that runs in a reader's browser, here in node."""
    worker = next((site / "assets" / "javascripts" / "workers").glob("search.*.min.js"))
    script = [node(), str(Path(__file__).with_name("search.js")), str(worker), str(site / "search/search_index.json")]
    process = subprocess.run([*script, *queries], capture_output=True, text=True, check=True, timeout=300)
    assert process.stderr == ""
    result: dict[str, list[str]] = json.loads(process.stdout)
    return result


def node() -> str:
    """The node of this machine, or the one in playwright's wheel."""
    from playwright._impl._driver import compute_driver_executable

    return shutil.which("node") or str(compute_driver_executable()[0])
