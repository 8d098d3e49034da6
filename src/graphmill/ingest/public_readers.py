"""Reads files into tables in one call. By default it finds the format from the content and the columns from the header."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from graphmill.errors import InputError, SettingsError, listed
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


def read_edges(path: str | Path, format: str = "", **settings: Any) -> Tables:
    """Read a knowledge graph from a table of edges, from triples, or from files of nodes and edges.

    Args:
        path: local path or fsspec URL.
        format: a format of docs/reference/ingestion.md, such as ``kg_csv``; "": found from the content.
        settings: settings of the format (docs/reference/ingestion.md), such as ``columns={"head_id": "from", "tail_id":
            "to"}``. Columns of a CSV that are not named are guessed from its header; ``notes`` lists the guesses.

    Raises:
        InputError: the file cannot be used. SettingsError: an unknown format or setting.
    """
    chosen = format or _recognised(path, "edges", "kg_csv")
    remarks: list[str] = []
    if chosen == "kg_csv":
        guess, remarks = _guessed(str(path), settings.get("columns") or {})
        settings = {"delimiter": guess["delimiter"], **settings, "columns": guess["columns"]}
    tables = _read(path, chosen, "edges", settings)
    return replace(tables, notes=[*remarks, *tables.notes])


def read_interactions(path: str | Path, format: str = "", **settings: Any) -> Tables:
    """Read interactions of users with items, such as purchases, ratings or plays.

    Args:
        path: local path or fsspec URL.
        format: ``interactions_csv``, ``sequence``, ``mmrec`` or ``kgat``; "": found from the content.
        settings: settings of the format (docs/reference/ingestion.md), such as ``columns={"user": "customer"}``.

    Raises:
        InputError: the file cannot be used. SettingsError: an unknown format or setting.
    """
    return _read(path, format or _recognised(path, "interactions", "interactions_csv"), "interactions", settings)


def _known(gives: str) -> list[str]:
    """The names of the formats of edges, or of interactions."""
    from graphmill.ingest.formats import FORMATS

    read = {name: each for name, each in FORMATS.items() if each.read is not None}
    kinds = {n: each.gives if isinstance(each.gives, str) else each.gives(each.settings()) for n, each in read.items()}
    return [name for name, kind in kinds.items() if kind.startswith(gives)]


def _recognised(path: str | Path, gives: str, otherwise: str) -> str:
    """The likeliest format of a path among those of the wanted kind."""
    from graphmill.ingest.report import recognised

    known = _known(gives)
    return next((name for name in recognised(path) if name in known), otherwise)


def _read(path: str | Path, format: str, gives: str, settings: Mapping[str, Any]) -> Tables:
    if format not in (known := _known(gives)):
        raise SettingsError(f"read_{gives}: there is no format '{format}' (known: {', '.join(known)})")
    return read_tables(path, format, settings, f"read_{gives}")


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


def _guessed(path: str, given: Mapping[str, str]) -> tuple[dict[str, Any], list[str]]:
    """Columns and delimiter of an edge file, from ``given`` and then from its header, and remarks on the guess."""
    from graphmill.ingest.kg_guess import guess_columns
    from graphmill.ingest.row_files import RowFile

    with RowFile(path) as file:
        names, delimiter = file.names, file.delimiter
    found, remarks = guess_columns(names, given)
    if found is None and not given:
        raise InputError(
            f"{path}: no column map could be guessed from {listed(names)}; name the ends and the relation, such as "
            'columns={"head_id": "…", "tail_id": "…", "relation": "…"}'
        )
    types = {"head_type_constant": "node", "tail_type_constant": "node"}
    guess = {part: name for part, name in found.model_dump().items() if name} if found else types
    decided = {part.removesuffix("_constant") for part in given}
    for part, name in list(guess.items()):
        if part.removesuffix("_constant") in decided or name in given.values():
            del guess[part]
    return {"columns": {**guess, **given}, "delimiter": delimiter}, [] if given else remarks
