"""The one place that decides how a path is read: its format, by its content, and the settings that fit it.

``graphmill ingest-report``, ``build`` and ``init``, the notebook and the estimates ask here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from graphmill.errors import GraphmillError, InputError, SettingsError
from graphmill.ingest.files import path_text
from graphmill.ingest.findings import FIRST_REJECTS, IngestReport, counted, dataset_name, documents_of, listed_columns
from graphmill.ingest.format import Candidate, Guess
from graphmill.ingest.formats import FORMATS
from graphmill.ingest.guard import guarded
from graphmill.ingest.interactions import SPLITS
from graphmill.ingest.interactions_csv import InteractionColumns
from graphmill.ingest.kg_columns import KgColumns
from graphmill.ingest.rejects import checked_share
from graphmill.settings import parse

__all__ = ["IngestReport", "ingest_report", "reading_of", "recognised"]

_CLOSE = 15
"""Another format whose score is within this distance of the best one is also named."""


def recognised(path: str | Path, columns: Iterable[str] = ()) -> list[str]:
    """The possible formats of a file or folder, the likeliest first. ``columns``: roles of columns that are named."""
    if columns := list(columns):
        return [_format_with(columns)]
    candidate = Candidate(str(path))
    sure = dict.fromkeys(FORMATS, 0)
    for name, each in FORMATS.items():
        with suppress(Exception):  # a format that fails on a damaged file does not recognise it
            sure[name] = each.recognises(candidate)
    best = max(sure.values())
    return sorted((n for n, s in sure.items() if s and s >= best - _CLOSE), key=lambda name: -sure[name])


def _format_with(roles: list[str]) -> str:
    """The format whose columns have these roles. Raises :class:`SettingsError` if there is none."""
    known = {"interactions_csv": list(InteractionColumns.model_fields), "kg_csv": list(KgColumns.model_fields)}
    fits = [format for format, parts in known.items() if set(roles) <= set(parts)]
    if not fits:
        wrong = next((role for role in roles if not any(role in parts for parts in known.values())), "")
        problem = f"{wrong!r} is no role" if wrong else f"no table has {', '.join(roles)} together"
        interactions, edges = (", ".join(parts) for parts in known.values())
        raise SettingsError(f"columns: {problem}; interactions have {interactions}; edges have {edges}")
    return fits[0] if "user" in roles or "item" in roles else fits[-1]


def reading_of(path: str | Path, format: str, columns: Mapping[str, str] | None = None) -> Guess:
    """The settings with which a path is read as ``format``. Raises :class:`InputError` if they cannot be told."""
    return guarded(FORMATS[format].guess)(Candidate(str(path)), columns or {})


def ingest_report(
    path: str | Path, format: str = "auto", columns: Mapping[str, str] | None = None, *, force: bool = False
) -> IngestReport:
    """Make a report on ``path`` as a source of ``format`` (``auto``: by its content).

    The whole file is read and checked. A file that cannot be used gives a report with ``problem``. ``columns``: role →
    column. ``force``: also use a file of which many rows are refused. Raises :class:`SettingsError` for an unknown format
    or role.
    """
    known = [name for name, each in FORMATS.items() if each.read or each.examine]
    if format not in ("auto", *known):
        raise SettingsError(f"there is no report on format '{format}'; choose one of auto, {', '.join(known)}")
    formats = [format] if format != "auto" else recognised(path, columns or ())
    candidate = Candidate(str(path))
    if not formats and candidate.is_folder:
        names = ", ".join(list(candidate.files)[:8]) or "no file"
        problem = f"no format is known by its files ({names}); name a file in it, or say which with --format"
        return IngestReport(path_text(path), "auto", problem=problem)
    reports = list[IngestReport]()
    for name in formats or ["kg_csv"]:
        try:
            if (examine := FORMATS[name].examine) is not None:
                reports.append(guarded(examine)(str(path)))
            else:
                reports.append(report_on(str(path), name, reading_of(path, name, columns), force=force))
        except InputError as error:
            reports.append(IngestReport(path_text(path), name, problem=str(error)))
        if not reports[-1].problem:
            break
    report = reports[-1] if not reports[-1].problem else reports[0]
    if not formats and (probe := candidate.probe) is not None and probe.header is False and len(probe.ids) == 2:
        unclear = (
            f"{path_text(path)} has no header, and its numbers do not say whether they are users with items or nodes of "
            "one kind: say it with --format sequence or --format kg_csv"
        )
        return replace(report, problem=unclear)
    others = [name for name in formats if name != report.format]
    other = f"the format, {report.format}, by the content; it may also be {' or '.join(others)} (--format)"
    return replace(report, remarks=[*[other] * bool(others), *report.remarks])


def report_on(path: str, format: str, guess: Guess, *, force: bool = False) -> IngestReport:
    """The report on ``path``, read as ``format`` with the guessed settings."""
    each, candidate = FORMATS[format], Candidate(path)
    read = each.read
    assert read is not None
    report = IngestReport(path_text(path), format, remarks=guess.remarks)
    if guess.parts and candidate.probe is not None:
        first = dict(zip(candidate.probe.names, next(iter(candidate.probe.rows), ()), strict=False))
        report = replace(report, columns=listed_columns(candidate.probe.names, guess.parts, first))
    problem = ""
    try:
        result = read(path, parse(each.settings, guess.settings, format))
        if not force:
            problem = checked_share(result.counts, result.rejects, path_text(path))
    except GraphmillError as error:
        return replace(report, problem=str(error))
    splits = dict[str, int]()
    if "split" in result.edges.column_names:
        numbers = np.bincount(result.edges["split"].to_numpy(), minlength=len(SPLITS)).tolist()
        splits = dict(zip(SPLITS, numbers, strict=True))
    items = each.gives_by(parse(each.settings, guess.settings, format)).startswith("inter")
    name, predicts = ("interactions", "recommendations") if items else ("edges", "links")
    source: dict[str, Any] = {"name": name, "format": format, "path": path_text(path), **guess.settings}
    return replace(
        report,
        problem=problem,
        counts=splits | result.counts,
        notes=result.notes,
        coverage=[each.to_dict() for each in result.coverage],
        node_types=counted(result.nodes["type"]),
        relations=counted(result.edges["relation"]),
        rejects=result.rejects.slice(0, FIRST_REJECTS).to_pylist(),
        documents=documents_of(dataset_name(path), source, predicts, each.suited(result), result.edges.num_rows),
    )
