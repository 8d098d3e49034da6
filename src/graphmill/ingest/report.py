"""``graphmill ingest-report``: what a path contains, how it would be read, what is wrong with it, and a defs.yaml for it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from graphmill.errors import InputError, SettingsError
from graphmill.ingest.files import shown
from graphmill.ingest.findings import IngestReport
from graphmill.ingest.format import Look
from graphmill.ingest.formats import FORMATS
from graphmill.ingest.guard import guarded

__all__ = ["IngestReport", "ingest_report", "recognised"]

_CLOSE = 15
"""Another format whose score is within this distance of the best one is also named."""


def recognised(path: str | Path) -> list[str]:
    """The possible formats of a file or folder, the likeliest first."""
    look = Look(str(path))
    sure = {name: _sure(name, look) for name in FORMATS}
    best = max(sure.values())
    return sorted((n for n, s in sure.items() if s and s >= best - _CLOSE), key=lambda name: -sure[name])


def ingest_report(path: str | Path, format: str = "auto") -> IngestReport:
    """Make a report on ``path`` as a source of ``format`` (``auto``: found from its content).

    The whole file is read and checked. A file that cannot be used gives a report with ``problem``. Raises
    :class:`SettingsError` for an unknown format.
    """
    if format != "auto":
        if format not in FORMATS:
            raise SettingsError(f"there is no report on format '{format}'; choose one of auto, {', '.join(FORMATS)}")
        return _examined(str(path), format)
    found = recognised(path)
    if not found and Look(str(path)).is_folder:
        names = ", ".join(list(Look(str(path)).files)[:8]) or "no file"
        problem = f"no format is known by its files ({names}); name a file in it, or say which with --format"
        return IngestReport(shown(path), "auto", problem=problem)
    name, *others = found or ["kg_csv"]
    report = _examined(str(path), name)
    other = [f"the format, {name}, by the content; it may also be {' or '.join(others)} (--format)"] if others else []
    return replace(report, remarks=[*other, *report.remarks])


def _sure(format: str, look: Look) -> int:
    try:
        return FORMATS[format].recognises(look)
    except Exception:  # a format that fails on a damaged file does not recognise it
        return 0


def _examined(path: str, format: str) -> IngestReport:
    try:
        return guarded(FORMATS[format].examine)(path)
    except InputError as error:  # damage that the format's own check did not expect
        return IngestReport(shown(path), format, problem=str(error))
