"""The format ``kg_files``: edge files, each with its own columns or one relation for all rows, and node files.

This is the layout of OGB, GraphStorm and most database exports. ``path`` is the folder, or one file. Files that are not
listed are found by their headers: words for two ends; those of KGX, Monarch and Translator, whose ids are CURIEs; those of
``neo4j-admin import`` (``:START_ID(Drug)``); and those of APOC's export, one file with nodes and edges.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import model_validator

from graphmill.errors import InputError, listed
from graphmill.ingest.column_maps import DELIMITER, HEADER, Delimiter, EdgeColumns, EdgeSource, KgColumns, NodeSource
from graphmill.ingest.files import guarded, path_text, within
from graphmill.ingest.format import Candidate, Format, Guess, all_types, no_columns
from graphmill.ingest.graph_files import read_graph
from graphmill.ingest.kg_csv import guess_columns
from graphmill.ingest.names import TITLES, first_named
from graphmill.ingest.row_files import RowFile, kind_of
from graphmill.ingest.tables import KEEP_NEGATED, MIN_CONFIDENCE, IngestResult
from graphmill.settings import Settings, parse, setting

TABLES = tuple(
    f".{kind}{packed}" for kind in ("csv", "tsv", "txt", "jsonl", "parquet", "pq") for packed in ("", ".gz", ".zip")
)
"""Endings of files that may be tables."""
PREFIX = "biolink:"
"""Removed from relations and types."""
_KGX = {"subject", "predicate", "object"}
_KGX_OTHERS = {"knowledge_level", "agent_type", "primary_knowledge_source", "aggregator_knowledge_source", "provided_by",
               "knowledge_source", "subject_category", "object_category", "publications", "category"}  # fmt: skip
_NEO4J = re.compile(
    r"(?P<name>[^:]*):(?P<kind>ID|LABEL|START_ID|END_ID|TYPE)(\((?P<space>[^)]*)\))?(\{.*\})?", re.IGNORECASE
)
_APOC = ("_id", "_labels", "_start", "_end", "_type")
_GUESSED = ("type", "name", "source")
_LABEL_MARKS = ";:"
"""Separators of Neo4j's labels."""


class TableFile(Settings):
    """One file of a folder."""

    file: str = setting("", "path of the file within the folder")
    delimiter: Delimiter = DELIMITER
    header: bool = HEADER


class EdgeFile(TableFile):
    """One edge file."""

    relation: str = setting("", "one relation for all rows, such as treats")
    head_type: str = setting("", "one node type for all heads; empty: the type of the node with this id")
    tail_type: str = setting("", "one node type for all tails; empty: the type of the node with this id")
    columns: EdgeColumns = setting(EdgeColumns(), "column map")


class NodeFile(TableFile):
    """One node file."""

    type: str = setting("", "one node type for all rows")
    space: str = setting("", "the name by which edge files mean its ids, as head_type or tail_type, if not by the type")
    id_column: str = setting("id", "column with the id")
    type_column: str = setting("", "column with the type, or several types")
    name_column: str = setting("", "column with the name; empty: the id")
    source_column: str = setting("", "column with the vocabulary from which the id comes")


class KgFilesSettings(Settings):
    """How a ``kg_files`` source is read."""

    edges: list[EdgeFile] = setting([], "the edge files; without any, edge and node files are found by their headers")
    nodes: list[NodeFile] = setting([], "the node files; without any, the nodes are those of the edges")
    type_separator: str = setting("|", "characters that separate several types of a node")
    keep_negated: bool = KEEP_NEGATED
    min_confidence: float = MIN_CONFIDENCE

    @model_validator(mode="after")
    def _complete(self) -> KgFilesSettings:
        if self.nodes and not self.edges:
            raise ValueError("edges: list the edge files, too, each as {file: …, relation: …}")
        for kind, files in (("edges", self.edges), ("nodes", self.nodes)):
            names = [file.file for file in files]
            if "" in names:
                raise ValueError(f"{kind}: entry {names.index('') + 1} has no file")
        return self


def kg_files(path: str | Path, settings: KgFilesSettings) -> dict[str, str | Path]:
    """Role → file: ``edges:NAME`` and ``nodes:NAME``. Raises :class:`InputError` if no file has edges."""
    folder, settings = _listed(path, settings)
    roles = [("edges", file.file) for file in settings.edges] + [("nodes", file.file) for file in settings.nodes]
    return {f"{role}:{name}": within(folder, name) for role, name in roles}


def _listed(path: str | Path, settings: KgFilesSettings) -> tuple[str, KgFilesSettings]:
    """The folder, and the settings with all files. Raises :class:`InputError` if no file has edges."""
    candidate = Candidate(str(path))
    alone = not candidate.is_folder and ("://" in str(path) or Path(path).is_file())
    folder = str(path).rpartition("/")[0] or "." if alone else str(path)
    if settings.edges:
        return str(path) if "://" in str(path) else folder, settings
    if not candidate.is_folder:
        kind_of(path)  # says what is wrong with a file that cannot be read
    lists = guess_of_files(_files(candidate)).settings
    lists = {key: value for key, value in lists.items() if key not in settings.model_fields_set}
    return folder, parse(KgFilesSettings, settings.model_dump(exclude_unset=True) | lists, "kg_files")


@guarded
def read_kg_files(path: str | Path, settings: KgFilesSettings | None = None) -> IngestResult:
    """Read the folder or file ``path`` into nodes, edges and rejects.

    Raises :class:`InputError` if a file is missing or cannot be used, a column is missing, or no edge is left.
    """
    settings = settings or KgFilesSettings()
    folder, full = _listed(path, settings)
    both = {file.file for file in full.nodes} & {file.file for file in full.edges}
    nodes = [
        NodeSource(
            within(folder, file.file), file.id_column, file.type_column, file.name_column, file.source_column, file.type,
            file.space, file.delimiter, file.header, only_where=file.id_column if file.file in both else "",
        )
        for file in full.nodes
    ]  # fmt: skip
    edges, ends = list[EdgeSource](), list[NodeSource]()
    for file in full.edges:
        source = edge_source(within(folder, file.file), file)
        edges.append(replace(source, only_where=source.head.id) if file.file in both else source)
        names = set(Candidate(source.path).columns) if not nodes and not source.head.type else set()
        if {"subject", "object", "subject_category", "object_category"} <= names:
            ends += [NodeSource(source.path, end, f"{end}_category") for end in ("subject", "object")]
    try:
        return read_graph(
            path_text(path), edges, nodes or ends, keep_negated=full.keep_negated, min_confidence=full.min_confidence,
            separators=full.type_separator, prefix=PREFIX, listed_first=not ends,
        )  # fmt: skip
    except InputError as error:
        used = {file.file for file in full.edges} | {file.file for file in full.nodes}
        others = [name for name in Candidate(folder).files if name.lower().endswith(TABLES) and name not in used]
        if settings.edges or not others or "has no usable edge" not in str(error):
            raise
        raise InputError(
            f"{error}; {', '.join(others[:3])} have no header with an id or two ends: where headers are files of their own, "
            "put each on top of its data (cat header.csv data.csv > all.csv)"
        ) from None


def edge_source(path: str, file: EdgeFile) -> EdgeSource:
    """The file with its columns: those named in the settings, and for the others those guessed from the header."""
    given = {role: name for role, name in file.columns.model_dump().items() if name}
    with RowFile(path, file.delimiter, header_line=file.header, wanted=list(given.values())) as opened:
        names, name = opened.names, opened.name
        opened.require(list(given.values()))
    guess = guess_columns(names)[0]
    guessed = {role: column for role, column in (guess.model_dump() if guess else {}).items() if column}
    if any(end in given and given[end] != guessed.get(end) for end in ("head_id", "tail_id")):
        guessed = {}
    constants = {"relation": file.relation, "head_type": file.head_type, "tail_type": file.tail_type}
    for role in ("relation", "head_id", "tail_id", *(f"{end}_{part}" for end in ("head", "tail") for part in _GUESSED)):
        # Ids of KGX are unique over all types, of which a node may have several.
        of_kgx = role.endswith("_type") and guessed.get(role, "").endswith("_category")
        if role in guessed and not constants.get(role) and not of_kgx:
            given.setdefault(role, guessed[role])
    if not {"head_id", "tail_id"} <= set(given):
        raise InputError(
            f"{name}: which columns are head and tail? It has {listed(names)}; name both in columns: {{head_id: …, tail_id: "
            "…}"
        )
    if "relation" not in given and not file.relation:
        raise InputError(
            f"{name}: which relation? Write relation: NAME for all rows of the file, or columns: {{relation: …}}"
        )
    given |= {
        f"{role}_constant": constant for role, constant in constants.items() if role != "relation" or role not in given
    }
    source = KgColumns.model_construct(**given).of_file(path, file.delimiter, file.header)
    return replace(source, prefix=PREFIX, types_required=False)


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
        if of_neo4j := _files_of_neo4j(name, names):
            for part, file_of_neo4j in of_neo4j.items():
                files_of[part].append(file_of_neo4j)
            continue
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
            entry |= {"source_column": "provided_by"} if {"category", "provided_by"} <= set(names) else {}
            if not kind:
                remarks.append(f"{name} has no column of types: all its nodes are of type {stem}")
            files_of["nodes"].append(entry)
    return files_of, remarks


def _files_of_neo4j(file: str, names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """The settings ``nodes`` or ``edges`` (APOC: both) of a file with a header of Neo4j; {} for another one."""
    title, stem = first_named(names, TITLES), file.rpartition("/")[2].partition(".")[0]
    named = {"name_column": title} if title else {}
    if set(_APOC) <= set(names):
        ends = {"head_id": "_start", "tail_id": "_end", "relation": "_type"}
        nodes = {"file": file, "id_column": "_id", "type_column": "_labels", **named}
        return {"edges": {"file": file, "columns": ends}, "nodes": nodes}
    parts: dict[str, tuple[str, str]] = {}
    for name in names:
        if match := _NEO4J.fullmatch(name.strip()):
            parts.setdefault(match["kind"].upper(), (name, (match["space"] or "").strip()))
    label = parts.get("LABEL", ("", ""))[0]
    if {"START_ID", "END_ID"} <= set(parts):
        (head, of_head), (tail, of_tail) = parts["START_ID"], parts["END_ID"]
        columns, entry = {"head_id": head, "tail_id": tail}, {"file": file, "head_type": of_head, "tail_type": of_tail}
        if "TYPE" in parts:
            columns["relation"] = parts["TYPE"][0]
        else:
            entry["relation"] = stem
        return {"edges": {**{key: value for key, value in entry.items() if value}, "columns": columns}}
    if "ID" not in parts:
        return {}
    key, space = parts["ID"]
    kind = {"type_column": label} if label else {"type": space or stem}
    return {"nodes": {"file": file, "id_column": key, **kind, **named, **({"space": space} if space else {})}}


def guess_of_files(files: Mapping[str, str | Path], *, unsure: bool = False) -> Guess:
    """The guess for files (name within their folder → location). Raises :class:`InputError` if none has edges."""
    files_of, remarks = guessed_files(files, unsure=unsure)
    if not files_of["edges"]:
        alone = "; there are only nodes: name the folder, or the file of edges" if files_of["nodes"] else ""
        raise InputError(
            f"no file has columns for the two ends of an edge{alone}; or list them: edges: [{{file: …, relation: …}}]"
        )
    types = [entry.get("type_column", "") for entry in files_of["nodes"]]
    marks = {"type_separator": _LABEL_MARKS} if any(t == "_labels" or _NEO4J.fullmatch(t) for t in types) else {}
    return Guess({kind: entries for kind, entries in files_of.items() if entries} | marks, remarks)


def _files(candidate: Candidate) -> Mapping[str, str | Path]:
    """The files of a folder by name; or one file, and for edges of KGX the node file beside it, if there is one."""
    if candidate.is_folder:
        return candidate.files
    folder, _, name = candidate.path.rpartition("/")
    nodes: dict[str, str | Path] = {}
    if set(candidate.columns) >= _KGX:
        others = Candidate(folder or ".").files.items()
        nodes |= {n: file for n, file in others if {"id", "category"} <= set(Candidate(str(file)).columns)}
    return {name: candidate.path} | (nodes if len(nodes) == 1 else {})


def _guess(candidate: Candidate, columns: Mapping[str, str]) -> Guess:
    no_columns(columns)
    return guess_of_files(_files(candidate))


def _recognises(candidate: Candidate) -> int:
    if candidate.is_folder:
        headers = [Candidate(str(f)).columns for n, f in candidate.files.items() if n.lower().endswith(TABLES)]
        if any(set(names) >= _KGX or "edges" in _files_of_neo4j("", names) for names in headers):
            return 97
        return 50 if guessed_files(candidate.files)[0]["edges"] else 0
    names, of_neo4j = set(candidate.columns), _files_of_neo4j("", candidate.columns)
    if of_neo4j:
        return 97 if "edges" in of_neo4j else 0
    of_kgx = any(PREFIX in line for line in candidate.lines)
    if names >= _KGX:
        return 85 if names & _KGX_OTHERS or of_kgx else 0
    return 80 if {"id", "category"} <= names and of_kgx else 0


FORMAT = Format(
    "kg_files",
    KgFilesSettings,
    "edges",
    _recognises,
    read_kg_files,
    kg_files,
    guess=_guess,
    suited=all_types,
)
