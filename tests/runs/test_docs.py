"""The pages that are written from the code, or that name it, are current."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from graphmill import errors
from graphmill.runs import launch
from graphmill.systems.registry import SYSTEMS
from tests.conftest import page_writer
from tests.runs.fuzz import setting_paths


def test_the_pages_of_settings_are_current(repository: Path) -> None:
    written = page_writer("settings").written()
    folder = repository / "docs" / "reference"
    pages = {folder / "settings.md", *(folder / "settings").glob("*.md")}
    assert {path: path.read_text(encoding="utf-8") for path in pages} == written, "make pages"
    assert all(f"`{name}`" in "".join(written.values()) for name in SYSTEMS)


def test_every_setting_that_the_page_of_old_names_points_to_exists(repository: Path) -> None:
    known = set().union(*setting_paths().values())
    page = (repository / "docs" / "reference" / "knobs.md").read_text()
    rows = [line.split(" → ")[1].partition(": ")[0] for line in page.splitlines() if line.startswith("- ")]
    ours = [name for row in rows for name in re.findall(r"`([a-z0-9_.]+)`", row)]
    assert len(ours) > 40
    assert [name for name in ours if name not in known] == []
    assert all("`" in row or row == "–" for row in rows), "every line says where, or that there is nothing to set"


def test_links_to_other_sites_are_whole_and_encrypted(repository: Path) -> None:
    """Whether they still lead somewhere needs a network: CONTRIBUTING.md has the command."""
    pages = [repository / "README.md", *(repository / "docs").rglob("*.md")]
    links = {link for page in pages for link in re.findall(r"\]\((\w+:[^)]*)\)", page.read_text(encoding="utf-8"))}
    assert links
    assert {link for link in links if not re.fullmatch(r"https://[\w-]+(\.[\w-]+)+(/[^\s<>]*)?", link)} == set()


def test_every_row_of_a_table_has_a_cell_a_column(repository: Path) -> None:
    """A row that is broken over two lines, or two rows on one, still builds; a reader sees garbage."""
    broken = []
    for page in [repository / "README.md", *(repository / "docs").rglob("*.md")]:
        text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
        for table in re.findall(r"^(\|.*\n\|(?: *:?-+:? *\|)+\n(?:.+\n?)*)", text, flags=re.MULTILINE):
            rows = [re.sub(r"`[^`]*`|\\\|", "", row) for row in table.splitlines()]
            broken += [f"{page.name}: {row}" for row in rows if row.count("|") != rows[0].count("|")]
    assert broken == []


def test_code_on_the_pages_is_code(repository: Path) -> None:
    """A block that was filled like a paragraph still looks like a block, and cannot be copied."""
    broken = []
    for page in [repository / "README.md", *(repository / "docs").rglob("*.md")]:
        blocks = re.findall(r"^( *)```(\w*)\n(.*?)^ *```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
        for indent, language, block in blocks:
            code = re.sub(f"^{indent}", "", block, flags=re.MULTILINE)
            broken += [
                f"{page.name}: {line}" for line in code.splitlines() if re.search(r"#.* (graphmill|curl)( |$)", line)
            ]
            if language == "python" and not code.startswith(">>>"):
                try:
                    ast.parse(code.replace("…", "..."))
                except SyntaxError as error:
                    broken.append(f"{page.name}: {error}")
    assert broken == []


def test_every_exit_code_is_explained(repository: Path) -> None:
    text = (repository / "docs" / "reference" / "exit_codes.md").read_text()
    codes = (errors.EXIT_OK, errors.EXIT_CHECK_FAILED, errors.EXIT_USER_ERROR, errors.EXIT_STOPPED, launch.EXIT_KILLED)
    for code in codes:
        assert f"| {int(code)} |" in text


# Names that a system or the machine puts into a message; numbers and what "…" stands for need no entry.
EXAMPLES = {"encoder", "No", "jsonl"}


def words(text: str) -> list[str]:
    return re.findall(r"[A-Za-z_]+|[0-9][0-9.]*", text)


class Source:
    """The words of every text in the code that is not a docstring; an f-string gives one text per part between braces."""

    def __init__(self, folder: Path) -> None:
        self.texts: set[str] = set()
        for path in folder.rglob("*.py"):
            tree = ast.parse(path.read_text())
            documentation = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
            for node in ast.walk(tree):
                if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documentation:
                    self.texts.add(" ".join(words(node.value)))
        self.joined = "\n".join(f" {text} " for text in self.texts if text)

    def unknown(self, message: str) -> list[str]:
        """Words of a message that are no example and that no text of the code has beside their neighbours.

        A run of words must be all of a text, or three or more of one (two at "…"), or, behind a value, its beginning.
        """
        out = []
        for fragment in message.split("…"):
            todo, after_value = words(fragment), True
            while todo:
                run = next((n for n in range(len(todo), 0, -1) if self._has(todo, n, after_value)), 0)
                if run:
                    todo, after_value = todo[run:], run == 1  # a single word may be a value: a device, a system
                    continue
                word, *todo = todo
                after_value = word in EXAMPLES or word[0].isdigit()
                if not after_value:
                    out.append(word)
        return out

    def _has(self, todo: list[str], run: int, after_value: bool) -> bool:
        text = " ".join(todo[:run])
        if text in self.texts or (after_value and f"\n {text} " in self.joined):
            return True
        cut_off = run == len(todo)  # by "…"
        return (run >= 3 or (cut_off and run == 2)) and f" {text} " in self.joined


@pytest.fixture(scope="module")
def source(repository: Path) -> Source:
    return Source(repository / "src" / "graphmill")


def test_every_message_of_the_page_is_one_of_the_code(source: Source, repository: Path) -> None:
    page = (repository / "docs" / "how-to" / "when_a_training_goes_wrong.md").read_text()
    messages = [text for bold in re.findall(r"\*\*(.+?)\*\*", page) for text in re.findall(r"`([^`]+)`", bold)]
    assert len(messages) > 40
    assert {message: result for message in messages if (result := source.unknown(message))} == {}


@pytest.mark.parametrize(
    ("message", "unknown"),
    [
        ("7 steps in a row were not infinite; last: …", ["infinite"]),
        ("the processes have different copies of parameter …", ["different"]),
        ("the run directory … cannot be found", ["found"]),
    ],
)
def test_a_message_that_the_code_does_not_have_is_found_out(message: str, unknown: list[str], source: Source) -> None:
    assert set(unknown) & set(source.unknown(message))
