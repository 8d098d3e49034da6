"""What docs/extending says a system (four files, an entry), a format (three files) and a check (two) take, beside tests."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from graphmill.evaluation.health.checks import CHECKS
from graphmill.ingest.formats import FORMATS
from graphmill.systems.registry import SYSTEMS

Words = dict[str, set[str]]
GENERATED = {"settings", "checks", "commands", "folders"}
"""Pages that ``make pages`` writes."""


@pytest.fixture(scope="module")
def words(repository: Path) -> Words:
    """Word → modules whose code writes it: in an import, as a name, an argument or a string of one word."""
    package, result = repository / "src" / "graphmill", Words()
    for path in package.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            texts: list[str] = []
            if isinstance(node, ast.ImportFrom):
                texts = [node.module or "", *(each.name for each in node.names)]
            elif isinstance(node, ast.Name):
                texts = [node.id]
            elif isinstance(node, ast.keyword):
                texts = [node.arg or ""]
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and " " not in node.value:
                texts = [node.value]
            for text in texts:
                for word in (text, *re.split(r"[._]", text.lower())):
                    result.setdefault(word, set()).add(str(path.relative_to(package)))
    return result


def mentions(repository: Path, word: str) -> set[str]:
    """Files of the program, its packaging, its builds and its reference that have a word; no generated pages."""
    places = ("src", "deploy", "data/01_raw", ".ci", ".github", "docs/reference")
    files = [path for place in places for path in (repository / place).rglob("*") if path.is_file()]
    files += [path for path in repository.iterdir() if path.suffix in (".toml", ".yml", ".yaml", ".txt")]
    files = [path for path in files if path.suffix not in (".pyc", ".parquet", ".gz")]
    pattern = re.compile(rf"\b{word}\b", re.IGNORECASE)
    result = {path for path in files if pattern.search(path.read_text(encoding="utf-8", errors="replace"))}
    written = repository / "docs" / "reference" / "settings"
    result = {
        path for path in result if path.parent != written and (path.stem not in GENERATED or path.suffix != ".md")
    }
    return {str(path.relative_to(repository)) for path in result}


def test_a_system_takes_four_files_and_an_entry(repository: Path) -> None:
    folder = repository / "src" / "graphmill" / "systems" / "lightgcn"
    files = {str(path.relative_to(repository)) for path in folder.iterdir() if path.is_file() and path.stat().st_size}
    assert len(files) == 4
    prose = {"docs/reference/knobs.md", "docs/reference/results.md"}  # what was found out about it, for readers
    assert mentions(repository, "lightgcn") - prose == files | {"src/graphmill/systems/entry.py"}


def test_every_folder_of_a_system_is_found() -> None:
    assert {"mf", "hgt", "lightgcn", "sasrec", "tisasrec"} < set(SYSTEMS)
    assert SYSTEMS["lightgcn"].module == "graphmill.systems.lightgcn"


def test_a_format_takes_a_module_its_name_in_the_list_and_its_words(words: Words, repository: Path) -> None:
    assert "ntriples" in FORMATS
    assert words["ntriples"] - {"ingest/triples.py"} == {"ingest/ntriples.py", "ingest/formats.py"}  # triples names it
    outside = {file for file in mentions(repository, "ntriples") if not file.startswith("src/")}
    assert outside == {"docs/reference/ingestion.md"}


def test_a_check_takes_its_module_alone(words: Words) -> None:
    for threshold in (each for check in CHECKS for each in check.thresholds):
        assert len(words[threshold.name]) == 1, f"{threshold.name} is written where its check is, and nowhere else"
