"""The format ``kg_files``: several edge files, each with its own columns or one relation for all rows, and node files.

This is the layout of OGB (a file for each relation, without a header), GraphStorm (typed node and edge files) and most
database exports. ``path`` is the folder. Its files are CSV, Parquet or JSON lines, plain, gzipped or zipped.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import field_validator, model_validator

from graphmill.errors import InputError, listed
from graphmill.ingest.column_maps import EdgeEnd, EdgeSource, NodeSource
from graphmill.ingest.files import path_text, within
from graphmill.ingest.findings import all_types
from graphmill.ingest.format import Candidate, Format, Guess, Preview, no_columns, table_preview
from graphmill.ingest.graph_files import read_graph
from graphmill.ingest.graph_sources import GraphFilesSettings, require_confidence
from graphmill.ingest.guard import guarded
from graphmill.ingest.kg_columns import EdgeColumns, checked_delimiter
from graphmill.ingest.kg_guess import guess_columns
from graphmill.ingest.rejects import MIN_CONFIDENCE
from graphmill.ingest.row_files import RowFile
from graphmill.ingest.tables import IngestResult
from graphmill.settings import Settings, setting

TABLES = tuple(
    f".{kind}{packed}" for kind in ("csv", "tsv", "txt", "jsonl", "parquet", "pq") for packed in ("", ".gz", ".zip")
)
"""Endings of files that may be tables."""


class EdgeFile(Settings):
    """One edge file."""

    file: str = setting("", "path of the file within the folder")
    relation: str = setting("", "one relation for all rows, such as treats")
    head_type: str = setting("", "one node type for all heads; empty: the type of the node with this id")
    tail_type: str = setting("", "one node type for all tails; empty: the type of the node with this id")
    columns: EdgeColumns = setting(EdgeColumns(), "column map")
    delimiter: str = setting("auto", "one ASCII character between fields, the word tab, or auto")
    header: bool = setting(True, "whether the first line has column names; if not, the columns are named 0, 1, ...")

    _delimiter = field_validator("delimiter")(checked_delimiter)


class NodeFile(Settings):
    """One node file."""

    file: str = setting("", "path of the file within the folder")
    type: str = setting("", "one node type for all rows")
    id_column: str = setting("id", "column with the id")
    type_column: str = setting("", "column with the type, or several types")
    name_column: str = setting("", "column with the name; empty: the id")
    source_column: str = setting("", "column with the vocabulary from which the id comes")
    delimiter: str = setting("auto", "one ASCII character between fields, the word tab, or auto")
    header: bool = setting(True, "whether the first line has column names; if not, the columns are named 0, 1, ...")

    _delimiter = field_validator("delimiter")(checked_delimiter)


class KgFilesSettings(GraphFilesSettings):
    """How a ``kg_files`` source is read."""

    edges: list[EdgeFile] = setting([], "the edge files")
    nodes: list[NodeFile] = setting([], "the node files; without any, the nodes are those of the edges")
    type_separator: str = setting("|", "characters that separate several types of a node")
    min_confidence: float = MIN_CONFIDENCE

    @model_validator(mode="after")
    def _complete(self) -> KgFilesSettings:
        if not self.edges:
            raise ValueError("edges: list the edge files, each as {file: …, relation: …}")
        for kind, files in (("edges", self.edges), ("nodes", self.nodes)):
            names = [file.file for file in files]
            if "" in names:
                raise ValueError(f"{kind}: entry {names.index('') + 1} has no file")
        return self


def kg_files(path: str | Path, settings: KgFilesSettings) -> dict[str, str | Path]:
    """Role → file: ``nodes:NAME`` and ``edges:NAME``."""
    roles = [("edges", file.file) for file in settings.edges] + [("nodes", file.file) for file in settings.nodes]
    return {f"{role}:{name}": within(path, name) for role, name in roles}


@guarded
def read_kg_files(path: str | Path, settings: KgFilesSettings) -> IngestResult:
    """Read the folder ``path`` into nodes, edges and rejects.

    Raises :class:`InputError` if a file is missing or cannot be used, a column is missing, or no edge is left.
    """
    nodes = [
        NodeSource(
            within(path, file.file), file.id_column, file.type_column, file.name_column, file.source_column, file.type,
            delimiter=file.delimiter, header=file.header,
        )
        for file in settings.nodes
    ]  # fmt: skip
    edges = [edge_source(within(path, file.file), file, settings.min_confidence) for file in settings.edges]
    require_confidence(edges, path_text(path))
    return read_graph(path_text(path), settings, nodes, edges, separators=settings.type_separator)


def edge_source(path: str, file: EdgeFile, min_confidence: float = 0.0) -> EdgeSource:
    """The file with its columns: those named in the settings, and for the others those guessed from the header."""
    given = file.columns
    named = [value for value in given.model_dump().values() if value]
    with RowFile(path, file.delimiter, header_line=file.header, wanted=named) as opened:
        names, name = opened.names, opened.name
        opened.require(named)
    guess = guess_columns(names)[0]
    if guess and (given.head_id or given.tail_id) and (given.head_id, given.tail_id) != (guess.head_id, guess.tail_id):
        guess = None
    head, tail = (getattr(given, end) or (getattr(guess, end) if guess else "") for end in ("head_id", "tail_id"))
    if not head or not tail:
        raise InputError(
            f"{name}: which columns are head and tail? It has {listed(names)}; name both in columns: {{head_id: …, tail_id: "
            "…}"
        )

    def column(role: str, constant: str = "") -> str:
        return getattr(given, role) or ("" if constant or guess is None else getattr(guess, role))

    relation = column("relation", file.relation)
    if not relation and not file.relation:
        raise InputError(
            f"{name}: which relation? Write relation: NAME for all rows of the file, or columns: {{relation: …}}"
        )
    heads, tails = (
        EdgeEnd(id, column(f"{end}_type", constant), column(f"{end}_name"), column(f"{end}_source"), constant=constant)
        for end, id, constant in (("head", head, file.head_type), ("tail", tail, file.tail_type))
    )
    return EdgeSource(
        path, heads, tails, relation, "" if relation else file.relation, given.display_relation, given.timestamp,
        file.delimiter, file.header, weight=given.weight, confidence=given.confidence, min_confidence=min_confidence,
        evidence=given.evidence,
    )  # fmt: skip


def guessed_files(
    files: Mapping[str, str | Path], *, unsure: bool = False
) -> tuple[dict[str, list[dict[str, Any]]], list[str]]:
    """Guess the settings ``edges`` and ``nodes`` for files (name → location), with a remark on each guess.

    ``unsure``: also take a file with two or three columns of unknown names for edges.
    """
    files_of: dict[str, list[dict[str, Any]]] = {"edges": [], "nodes": []}
    remarks = []
    for name, file in files.items():
        if not name.lower().endswith(TABLES):
            continue
        names = Candidate(str(file)).columns
        columns, guesses = guess_columns(names) if len(names) > 1 else (None, [])
        surely = columns is not None and not any("taken for head and tail" in text for text in guesses)
        stem = name.rpartition("/")[2].partition(".")[0]
        lower = {n.lower(): n for n in reversed(names)}
        key = next((lower[n] for n in ("id", "node_id", "nodeid") if n in lower), "")
        if columns is not None and (surely or (unsure and not key)):
            entry: dict[str, Any] = {"file": name}
            if not surely:
                entry["columns"] = {"head_id": columns.head_id, "tail_id": columns.tail_id}
                entry["columns"] |= {"relation": columns.relation} if columns.relation else {}
                remarks.append(f"{name}: {columns.head_id} is taken for the head, {columns.tail_id} for the tail")
            if not columns.relation:
                entry["relation"] = stem
                remarks.append(f"{name} has no column of relations: all its edges are called {stem}")
            files_of["edges"].append(entry)
        elif key:
            entry = {"file": name} | ({"id_column": key} if key != "id" else {})
            kind = next((lower[n] for n in ("type", "category", "label", "labels") if n in lower), "")
            title = next((lower[n] for n in ("name", "title", "label") if n in lower and lower[n] != kind), "")
            entry |= {"type_column": kind} if kind else {"type": stem}
            entry |= {"name_column": title} if title else {}
            if not kind:
                remarks.append(f"{name} has no column of types: all its nodes are of type {stem}")
            files_of["nodes"].append(entry)
    return files_of, remarks


def guess_of_files(files: Mapping[str, str | Path], *, unsure: bool = False) -> Guess:
    """The guess for files (name within their folder → location). Raises :class:`InputError` if none has edges."""
    files_of, remarks = guessed_files(files, unsure=unsure)
    if not files_of["edges"]:
        raise InputError("no file has columns for the two ends of an edge; list them: edges: [{file: …, relation: …}]")
    return Guess({kind: entries for kind, entries in files_of.items() if entries}, remarks)


def _guess(candidate: Candidate, columns: Mapping[str, str]) -> Guess:
    no_columns(columns)
    return guess_of_files(candidate.files)


def _recognises(candidate: Candidate) -> int:
    return 50 if candidate.is_folder and guessed_files(candidate.files)[0]["edges"] else 0


def _preview(location: str, settings: KgFilesSettings, role: str) -> Preview:
    kind, _, name = role.partition(":")
    file = next(file for file in getattr(settings, kind) if file.file == name)
    return table_preview(location, file, role)


FORMAT = Format(
    "kg_files",
    KgFilesSettings,
    "edges",
    _recognises,
    read_kg_files,
    kg_files,
    data_roles=("edges",),
    guess=_guess,
    suited=all_types,
    preview=_preview,
)
