"""What docs/extending says a system, a format and a check take: five, two and two files beside their tests."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from graphmill.evaluation.health.checks import CHECKS
from graphmill.ingest.formats import FORMATS

Words = dict[str, set[str]]
EXTRAS = {"runs/scaling.py", "ingest/engine.py"}
"""Lists of what not every system and format can: sharding by rows, reading out of core."""


@pytest.fixture(scope="module")
def words(repository: Path) -> Words:
    """Word → modules whose code writes it: in an import, as a name, an argument or a string of one word."""
    package, found = repository / "src" / "graphmill", Words()
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
                    found.setdefault(word, set()).add(str(path.relative_to(package)))
    return found


def test_a_system_takes_five_files(words: Words, repository: Path) -> None:
    own = {f"systems/lightgcn/{name}.py" for name in ("model", "settings", "recipe", "cost")}
    assert words["lightgcn"] - own - EXTRAS == {"systems/registry.py"}
    package = repository / "src" / "graphmill"
    assert {str(path.relative_to(package)) for path in (package / "systems" / "lightgcn").glob("[!_]*.py")} == own


def test_a_format_takes_a_module_and_its_name_in_the_list(words: Words) -> None:
    assert "kgx" in FORMATS
    assert words["kgx"] - EXTRAS == {"ingest/kgx.py", "ingest/formats.py"}


def test_a_check_takes_its_module_and_a_page_that_is_made_from_it(words: Words, repository: Path) -> None:
    page = (repository / "docs" / "reference" / "checks.md").read_text(encoding="utf-8")
    for threshold in (each for check in CHECKS for each in check.thresholds):
        assert len(words[threshold.name]) == 1, f"{threshold.name} is written where its check is, and nowhere else"
        assert f"`{threshold.name}`" in page
