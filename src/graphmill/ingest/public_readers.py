"""Reads files into tables in one call. By default it finds the format from the content and the columns from the header."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from graphmill.errors import SettingsError
from graphmill.ingest.findings import counted
from graphmill.ingest.format import Guess
from graphmill.ingest.frames import as_file
from graphmill.ingest.notebook import page, pairs, sentences
from graphmill.ingest.tables import IngestResult


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
    from graphmill.ingest.formats import FORMATS
    from graphmill.ingest.report import reading_of, recognised

    read = {name: each for name, each in FORMATS.items() if each.read is not None}
    kinds = {n: each.gives if isinstance(each.gives, str) else each.gives(each.settings()) for n, each in read.items()}
    known = [name for name, kind in kinds.items() if kind.startswith(gives)]
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
    from graphmill.ingest.formats import FORMATS
    from graphmill.settings import parse

    if format not in FORMATS or (read := FORMATS[format].read) is None:
        known = ", ".join(name for name, each in FORMATS.items() if each.read)
        raise SettingsError(f"{where}: there is no format '{format}' of edges or interactions (known: {known})")
    result = read(str(path), parse(FORMATS[format].settings, dict(settings), where))
    return Tables(**vars(result), format=format)
