"""Reads files into tables in one call, and decides how a path is read: its format, by its content, and the settings that
fit it. Tables in memory (pandas, polars, Arrow) become files, so that they are read by the same code.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from graphmill.errors import GraphmillError, InputError, SettingsError, one_line
from graphmill.ingest.column_maps import KgColumns
from graphmill.ingest.files import CALLED, guarded, path_text
from graphmill.ingest.format import (
    FIRST_REJECTS,
    Candidate,
    Guess,
    IngestReport,
    counted,
    dataset_name,
    documents_of,
    listed_columns,
)
from graphmill.ingest.formats import FORMATS
from graphmill.ingest.interactions import SPLITS
from graphmill.ingest.interactions_csv import InteractionColumns
from graphmill.ingest.notebook import page, pairs, sentences
from graphmill.ingest.tables import IngestResult, checked_share
from graphmill.parquet import write_parquet
from graphmill.settings import parse

_NAME = "table"


@contextmanager
def as_file(given: Any) -> Iterator[str]:
    """The path ``given``; or, for a table in memory, that of a temporary Parquet file with its rows.

    Messages call such a table "table". Raises :class:`InputError` for an object that is neither.
    """
    if isinstance(given, str | Path):
        yield str(given)
        return
    with tempfile.TemporaryDirectory(prefix="graphmill-") as folder:
        file = Path(folder) / f"{_NAME}.parquet"
        write_parquet(_arrow(given), file)
        CALLED[str(file)] = _NAME
        try:
            yield str(file)
        finally:
            del CALLED[str(file)]


def _arrow(given: Any) -> pa.Table:
    try:
        if isinstance(given, pa.Table):
            return given
        if hasattr(given, "iloc"):  # of pandas: its index is no column
            return pa.Table.from_pandas(given, preserve_index=False)
        if hasattr(given, "collect_schema") and hasattr(given, "collect"):  # a lazy frame of polars
            given = given.collect()
        return pa.table(given)
    except (pa.ArrowException, TypeError, ValueError, AttributeError) as error:
        raise InputError(
            f"a {type(given).__name__} is no path and no readable table of pandas, polars or Arrow ({one_line(error)})"
        ) from None


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


@dataclass(frozen=True, repr=False)
class Tables(IngestResult):
    """The tables that a reader made from a file.

    ``nodes`` and ``edges`` (Arrow tables); ``rejects`` (rows that could not be used, with file, line and reason);
    ``counts`` and ``notes`` (what is unusual but allowed); ``features`` by node type; ``format`` (its name).
    """

    format: str = ""

    def __repr__(self) -> str:
        counts = ", ".join(f"{number:,} {name.replace('_', ' ')}" for name, number in self.counts.items() if number)
        return f"Tables({self.format}: {counts})"

    def _repr_html_(self) -> str:
        counts = {name: number for name, number in self.counts.items() if number}
        kinds = counted(self.nodes["type"]) | counted(self.edges["relation"])
        return page(f"Tables, read as {self.format}", pairs(counts), pairs(kinds), sentences(self.notes))


def read_edges(path: Any, format: str = "", **settings: Any) -> Tables:
    """Read a knowledge graph from a table of edges, from triples, or from files of nodes and edges.

    Args:
        path: local path or fsspec URL; or a table in memory (pandas, polars, Arrow).
        format: a format of docs/reference/ingestion.md, such as ``kg_csv``; "": found from the content.
        settings: settings of the format (docs/reference/ingestion.md), such as ``columns={"head_id": "from", "tail_id":
            "to"}``. Columns of a table that are not named are guessed from its header and first rows; ``notes`` lists
            the guesses.

    Raises:
        InputError: the file cannot be used. SettingsError: an unknown format or setting.
    """
    return _read(path, format, "edges", settings)


def read_interactions(path: Any, format: str = "", **settings: Any) -> Tables:
    """Read interactions of users with items, such as purchases, ratings or plays.

    Args:
        path: local path or fsspec URL; or a table in memory (pandas, polars, Arrow).
        format: ``interactions_csv``, ``sequence``, ``mmrec`` or ``kgat``; "": found from the content.
        settings: settings of the format (docs/reference/ingestion.md), such as ``columns={"user": "customer"}``.

    Raises:
        InputError: the file cannot be used. SettingsError: an unknown format or setting.
    """
    return _read(path, format, "interactions", settings)


_USUAL = {"edges": "kg_csv", "interactions": "interactions_csv"}


def _read(path: Any, format: str, gives: str, settings: Mapping[str, Any]) -> Tables:
    """``path`` in ``format``, or in the likeliest one of the wanted kind, with the settings that fit it."""
    known = [n for n, each in FORMATS.items() if each.read and each.gives_by(each.settings()).startswith(gives)]
    if format and format not in known:
        raise SettingsError(f"read_{gives}: there is no format '{format}' (known: {', '.join(known)})")
    with as_file(path) as file:
        chosen = format or next((name for name in recognised(file) if name in known), _USUAL[gives])
        guess = Guess({})
        if not format or chosen == "kg_csv":
            guess = reading_of(file, chosen, settings.get("columns"))
        given = {n: value for n, value in settings.items() if n != "columns" or "columns" not in guess.settings}
        tables = read_tables(file, chosen, {**guess.settings, **given}, f"read_{gives}")
    remarks = [] if settings.get("columns") else guess.remarks
    return replace(tables, notes=[*remarks, *tables.notes])


def read_tables(path: str | Path, format: str, settings: Mapping[str, Any], where: str) -> Tables:
    """Read ``path`` in any format with a reader. ``where``: the beginning of the message about a wrong setting.

    Raises :class:`SettingsError` and :class:`InputError` as :func:`read_edges` does.
    """
    if format not in FORMATS or (read := FORMATS[format].read) is None:
        known = ", ".join(name for name, each in FORMATS.items() if each.read)
        raise SettingsError(f"{where}: there is no format '{format}' of edges or interactions (known: {known})")
    result = read(str(path), parse(FORMATS[format].settings, dict(settings), where))
    return Tables(**vars(result), format=format)
