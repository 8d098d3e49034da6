"""Copies a finished run's directory to ``export.copy_to``, and copies it again whenever a command changes it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from graphmill.errors import GraphmillError
from graphmill.export.remote import copy_folder
from graphmill.runs.champion import MODELS


def copy_run(restored: Any) -> str:
    """Copy the run to ``export.copy_to``. Returns an error message, which the run's log has too, or "".

    A failed copy does not affect the run: the same command, or the next one on this run, copies the missing files.
    """
    target = str(restored.job.settings.export.copy_to)
    if not target:
        return ""
    try:
        copy_folder(restored.run.path, f"{target.rstrip('/')}/{_place(restored.run.path)}", last="report.json")
    except GraphmillError as error:
        restored.run.log("train").warning(f"export.copy_to: {error}")
        return str(error)
    return ""


def _place(run: Path) -> str:
    """``D/M/<run>`` for a run of a project, else the name of its parent folder and its own."""
    run = run.resolve()
    for folder in run.parents:
        if folder.name == MODELS:
            return str(run.relative_to(folder))
    return f"{run.parent.name}/{run.name}"
