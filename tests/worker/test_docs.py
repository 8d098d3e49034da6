"""The pages that are written from the code, or that name it, are current."""

from __future__ import annotations

import re
from pathlib import Path

from graphmill import errors
from graphmill.worker import launch
from graphmill.worker.settings_table import setting_paths, settings_markdown


def test_the_page_of_settings_is_current(repository: Path) -> None:
    written = (repository / "docs" / "settings.md").read_text(encoding="utf-8")
    assert written == settings_markdown(), "python -m graphmill.worker.settings_table > docs/settings.md"


def test_every_setting_that_the_page_of_old_names_points_to_exists(repository: Path) -> None:
    known = set().union(*setting_paths().values())
    rows = [line.split(" | ") for line in (repository / "docs" / "knobs.md").read_text().splitlines() if "|" in line]
    ours = [name for row in rows if len(row) >= 3 for name in re.findall(r"`([a-z0-9_.]+)`", row[1])]
    assert len(ours) > 60
    assert [name for name in ours if name not in known] == []
    # Every row says where, or that there is nothing to set.
    assert all("`" in row[1] or row[1].strip() in ("–", "here", "---") for row in rows if len(row) >= 3)


def test_every_exit_code_is_explained(repository: Path) -> None:
    text = (repository / "docs" / "exit_codes.md").read_text()
    codes = (errors.EXIT_OK, errors.EXIT_CHECK_FAILED, errors.EXIT_USER_ERROR, errors.EXIT_STOPPED, launch.EXIT_KILLED)
    for code in codes:
        assert f"| {int(code)} |" in text


def test_what_a_training_can_say_is_explained(repository: Path) -> None:
    """The words of the engine's messages, as they are in the code, have their place on the page."""
    files = sorted((repository / "src" / "graphmill").rglob("*.py"))
    # Literals that follow each other are one text.
    source = re.sub(r'"\s*\n\s*f?"', "", "\n".join(path.read_text() for path in files))
    page = (repository / "docs" / "when_a_training_goes_wrong.md").read_text()
    for words in (
        "is not finite at",
        "steps in a row were not finite",
        "nothing was saved of it",
        "rolled back to epoch",
        "out of memory",
        "is locked: process",
        "cannot write a checkpoint to",
        "is damaged",
        "does not fit this model",
        "stopped as asked after",
        "another process of this training has ended",
        "a worker process was killed before it could say why",
        "needs a C++ compiler",
        "turned off: not faster",
        "has no checkpoint; auto starts afresh",
        "has nothing in common with this model",
        "was written by a newer graphmill",
        "is no longer the graph that",
        "CUDA devices here and nccl needs one for each",
        "scores in a block are not finite",
        "fell back to the CPU",
    ):
        assert words in page, words
        assert words in source, words
