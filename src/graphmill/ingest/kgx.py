"""The format ``kgx``: ``…nodes.tsv`` and ``…edges.tsv`` (or ``.jsonl``, ``.csv``), as written by KGX, Monarch and
Translator.

Ids are CURIEs, unique over all types. A node has several Biolink categories; ``type_rule`` picks one. ``path`` is the
folder, or the edge file. Then the node file beside it is read, too; without one, the edges' own category columns are
used.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from graphmill.errors import InputError
from graphmill.ingest.column_maps import EdgeEnd, EdgeSource, NodeSource
from graphmill.ingest.files import path_text, within
from graphmill.ingest.findings import all_types
from graphmill.ingest.format import Candidate, Format, Guess, no_columns
from graphmill.ingest.graph_files import read_graph
from graphmill.ingest.graph_sources import GraphFilesSettings
from graphmill.ingest.guard import guarded
from graphmill.ingest.kg_files import TABLES
from graphmill.ingest.tables import IngestResult
from graphmill.settings import setting

_EDGE = {"subject", "predicate", "object"}
_KNOWN = {"knowledge_level", "agent_type", "primary_knowledge_source", "aggregator_knowledge_source", "knowledge_source",
          "provided_by", "subject_category", "object_category", "publications", "category"}  # fmt: skip
_PREFIX = "biolink:"


class KgxSettings(GraphFilesSettings):
    """How a ``kgx`` source is read."""

    missing_type: str = setting("NamedThing", "the type of nodes without a category", min_length=1)
    nodes: str = setting(
        "",
        "path of the node file within the folder; empty: the file whose name contains nodes; none: read no node file",
    )
    edges: str = setting("", "path of the edge file within the folder; empty: the file whose name contains edges")
    short_names: bool = setting(True, "remove the prefix biolink: from predicates and categories")


def kgx_files(path: str | Path, settings: KgxSettings | None = None) -> dict[str, str | Path]:
    """Role → file: ``edges``, and ``nodes`` if there is one.

    Raises :class:`InputError` if a folder has no such file, or several.
    """
    settings = settings or KgxSettings()
    candidate = Candidate(str(path))
    folder = candidate if candidate.is_folder else Candidate(str(Path(str(path)).parent))
    base = str(path) if candidate.is_folder or "://" in str(path) else folder.path
    edges = str(path) if not candidate.is_folder and not settings.edges else _one(folder, settings.edges, "edges", base)
    if not edges:
        raise InputError(
            f"{path_text(path)} has no file of edges (…edges.tsv, .jsonl or .csv); name it with edges: FILE"
        )
    files_of: dict[str, str | Path] = {"edges": edges}
    nodes = "" if settings.nodes == "none" else _one(folder, settings.nodes, "nodes", base)
    return files_of | ({"nodes": nodes} if nodes and nodes != edges else {})


def _one(folder: Candidate, given: str, kind: str, base: str) -> str:
    if given:
        return within(base, given)
    names = [name for name in folder.files if kind in name.lower() and name.lower().endswith(TABLES)]
    if len(names) > 1:
        raise InputError(
            f"{path_text(folder.path)} has several files of {kind} ({', '.join(names)}); name one with {kind}: FILE"
        )
    return str(folder.files[names[0]]) if names else ""


@guarded
def read_kgx(path: str | Path, settings: KgxSettings | None = None) -> IngestResult:
    """Read a KGX graph into nodes, edges and rejects.

    Raises :class:`InputError` if a file is missing, a column is missing, or no edge is left.
    """
    settings = settings or KgxSettings()
    files = {role: str(file) for role, file in kgx_files(path, settings).items()}
    columns = Candidate(files["edges"]).columns
    if "nodes" in files:
        listed = Candidate(files["nodes"]).columns
        category, name, source = (n if n in listed else "" for n in ("category", "name", "provided_by"))
        nodes = [NodeSource(files["nodes"], "id", category, name, source)]
    elif {"subject_category", "object_category"} <= set(columns):
        nodes = [NodeSource(files["edges"], end, f"{end}_category") for end in ("subject", "object")]
    else:
        nodes = []
    head, tail = (EdgeEnd(end, name=f"{end}_name" if f"{end}_name" in columns else "") for end in ("subject", "object"))
    prefix = _PREFIX if settings.short_names else ""
    edges = [EdgeSource(files["edges"], head, tail, "predicate", prefix=prefix)]
    return read_graph(path_text(path), settings, nodes, edges, prefix=prefix, listed_first="nodes" in files)


def _guess(candidate: Candidate, columns: Mapping[str, str]) -> Guess:
    if not candidate.is_folder and not set(candidate.columns) >= _EDGE:
        raise InputError(
            f"{path_text(candidate.path)} is a node file of KGX; name its folder, or the file of edges in the same folder"
        )
    return no_columns(columns)


def _recognises(candidate: Candidate) -> int:
    if candidate.is_folder:
        named = [str(f) for n, f in candidate.files.items() if "edges" in n.lower() and n.lower().endswith(TABLES)]
        return 97 if any(set(Candidate(file).columns) >= _EDGE for file in named) else 0
    names = set(candidate.columns)
    if names >= _EDGE:
        return 85 if names & _KNOWN or any(_PREFIX in line for line in candidate.lines) else 0
    return 80 if {"id", "category"} <= names and any(_PREFIX in line for line in candidate.lines) else 0


FORMAT = Format(
    "kgx",
    KgxSettings,
    "edges",
    _recognises,
    read_kgx,
    kgx_files,
    data_roles=("edges",),
    guess=_guess,
    suited=all_types,
)
