"""The format ``neo4j``: CSV files with headers of ``neo4j-admin import`` (``:START_ID(Drug)``), or a file of APOC's export.

``path`` is the folder, or one file. The type of a node is its label, or its ID space without labels. The relation is
``:TYPE``, or the name of the file.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from graphmill.errors import InputError
from graphmill.ingest.column_maps import EdgeEnd, EdgeSource, NodeSource
from graphmill.ingest.files import path_text
from graphmill.ingest.findings import all_types
from graphmill.ingest.format import Candidate, Format
from graphmill.ingest.graph_files import read_graph
from graphmill.ingest.graph_sources import GraphFilesSettings
from graphmill.ingest.guard import guarded
from graphmill.ingest.kg_files import TABLES
from graphmill.ingest.names import first_named
from graphmill.ingest.tables import IngestResult

_HEADER = re.compile(
    r"(?P<name>[^:]*):(?P<kind>ID|LABEL|START_ID|END_ID|TYPE)(\((?P<space>[^)]*)\))?(\{.*\})?", re.IGNORECASE
)
_APOC = ("_id", "_labels", "_start", "_end", "_type")
_NAMES = ("name", "title", "label", "displayname")
_SEPARATORS = ";:"


class Neo4jSettings(GraphFilesSettings):
    """How a ``neo4j`` source is read."""


class _Field(NamedTuple):
    column: str
    space: str


def neo4j_files(path: str | Path, settings: Neo4jSettings | None = None) -> dict[str, str | Path]:
    """Role → file: ``nodes:NAME`` and ``edges:NAME`` (``edges`` for APOC's export).

    Raises :class:`InputError` if no file has columns for the two ends of an edge.
    """
    candidate = Candidate(str(path))
    files = [f for n, f in candidate.files.items() if _is_table(n)] if candidate.is_folder else [path]
    files_of: dict[str, str | Path] = {}
    for file in files:
        kind = _kind(Candidate(str(file)).columns)
        if kind:
            files_of[f"{kind}:{str(file).rpartition('/')[2]}"] = file
    if not any(role.startswith("edges") for role in files_of):
        raise InputError(
            f"{path_text(path)} has no file with columns :START_ID and :END_ID, nor one of APOC's export (_start, _end, "
            "_type)"
        )
    # Edges first, because previews show a source's first data file.
    return dict(sorted(files_of.items(), key=lambda item: not item[0].startswith("edges")))


@guarded
def read_neo4j(path: str | Path, settings: Neo4jSettings | None = None) -> IngestResult:
    """Read the folder or file into nodes, edges and rejects.

    Raises :class:`InputError` if no file has edges, or if none of them can be used.
    """
    settings = settings or Neo4jSettings()
    nodes, edges = list[NodeSource](), list[EdgeSource]()
    for role, file in neo4j_files(path, settings).items():
        columns = Candidate(str(file)).columns
        if set(_APOC) <= set(columns):
            nodes.append(NodeSource(str(file), "_id", "_labels", first_named(columns, _NAMES), only_where="_id"))
            edges.append(EdgeSource(str(file), EdgeEnd("_start"), EdgeEnd("_end"), "_type", only_where="_start"))
        elif role.startswith("edges"):
            edges.append(_edge_file(str(file), _fields(columns)))
        else:
            nodes.append(_node_file(str(file), columns))
    try:
        return read_graph(path_text(path), settings, nodes, edges, separators=_SEPARATORS)
    except InputError as error:
        tables = {name: file for name, file in Candidate(str(path)).files.items() if _is_table(name)}
        others = [name for name, file in tables.items() if not _kind(Candidate(str(file)).columns)]
        if others and "has no usable edge" in str(error):
            raise InputError(
                f"{error}; {', '.join(others[:3])} have no header of Neo4j: where headers are files of their own, put each "
                "on top of its data (cat header.csv data.csv > all.csv)"
            ) from None
        raise


def _edge_file(file: str, parts: Mapping[str, _Field]) -> EdgeSource:
    head, tail = (EdgeEnd(parts[end].column, constant=parts[end].space) for end in ("START_ID", "END_ID"))
    relation = parts["TYPE"].column if "TYPE" in parts else ""
    return EdgeSource(file, head, tail, relation, "" if relation else _stem(file))


def _node_file(file: str, columns: Sequence[str]) -> NodeSource:
    parts = _fields(columns)
    key, label = parts["ID"], parts["LABEL"].column if "LABEL" in parts else ""
    return NodeSource(
        file,
        key.column,
        label,
        first_named(columns, _NAMES),
        constant="" if label else key.space or _stem(file),
        space=key.space,
    )


def _is_table(name: str) -> bool:
    return name.lower().endswith(TABLES)


def _stem(file: str) -> str:
    return file.rpartition("/")[2].partition(".")[0]


def _fields(columns: Sequence[str]) -> dict[str, _Field]:
    fields: dict[str, _Field] = {}
    for column in columns:
        if parts := _HEADER.fullmatch(column.strip()):
            fields.setdefault(parts["kind"].upper(), _Field(column, (parts["space"] or "").strip()))
    return fields


def _kind(columns: Sequence[str]) -> str:
    parts = _fields(columns)
    if set(_APOC) <= set(columns) or {"START_ID", "END_ID"} <= set(parts):
        return "edges"
    return "nodes" if "ID" in parts else ""


def _recognises(candidate: Candidate) -> int:
    files = [f for n, f in candidate.files.items() if _is_table(n)] if candidate.is_folder else [candidate.path]
    return 97 if any(_kind(Candidate(str(file)).columns) == "edges" for file in files) else 0


FORMAT = Format(
    "neo4j",
    Neo4jSettings,
    "edges",
    _recognises,
    read_neo4j,
    neo4j_files,
    data_roles=("edges",),
    suited=all_types,
)
