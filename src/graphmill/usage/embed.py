"""Nodes and edges that came after the training, untrained: vectors of new nodes, from their edges to known nodes or from
their features, and the run's graph with the new nodes and edges, on which its model scores links.

:func:`embed_run` writes an export of known and new nodes, which can be read, compared and scored like any other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, cast

import numpy as np
import pyarrow as pa
from torch import nn

from graphmill.atomic_files import writing
from graphmill.errors import InputError, SettingsError
from graphmill.evaluation.drift.procrustes import fit_rotation
from graphmill.evaluation.embedding_files import read_embeddings
from graphmill.export.embeddings import SCORING, export_embeddings
from graphmill.export.manifests import read_manifest
from graphmill.export.writers import parquet_embeddings
from graphmill.graph.build import build_graph
from graphmill.graph.later_nodes import LaterNodes
from graphmill.graph.relations import mirror_of
from graphmill.graph.settings import GraphSettings
from graphmill.graph.splits import TRAIN
from graphmill.graph.typed_graph import TypedGraph
from graphmill.ingest.id_columns import coverage
from graphmill.ingest.tables import IngestResult, weights_of
from graphmill.runs.export import Restored, restore
from graphmill.systems import registry
from graphmill.systems.base_system import blocks_of
from graphmill.systems.entry import Entry
from graphmill.usage.joining_nodes import FeatureFiles, read_later_edges, with_featured_nodes
from graphmill.usage.links import LinkModel
from graphmill.verified_files import MANIFEST, describe_file

FOLDER = "embeddings_later"
"""The default folder, inside the run directory."""
GROWN = "grown_graph"
"""Inside the run directory: the graph with the nodes and edges of the last file."""
NEW = "new_nodes.parquet"
"""The file with the rows of only the new nodes."""


class EmbedsLater(Protocol):
    """A system that can embed nodes it was not trained with.

    If ``embeds_from_features`` is True, a node with features needs no edges.
    """

    def embed_later(self, model: nn.Module, later: LaterNodes) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Return vectors, float32 [new nodes, width], ordered by type, and the arrays that score links with the vectors
        of all nodes. The arrays are those of ``scoring``, with each type's new nodes after its known ones. There are
        none if an export cannot score.
        """


@dataclass(frozen=True)
class Joined:
    """New nodes of a file: ``rows`` of its node table by type of the graph, and their edges."""

    rows: list[np.ndarray]
    later: LaterNodes


def embed_run(
    restored: Restored,
    tables: IngestResult | None,
    source: str,
    output: Path | None = None,
    features: FeatureFiles | None = None,
) -> dict[str, Any]:
    """Write an export of all nodes, in which known nodes keep their vectors, and return its manifest.

    ``tables``: nodes and edges of the file ``source``, or None if there are only features. Each type's new nodes come
    after its known ones. Edges between known nodes count as known links from then on.

    Raises:
        SettingsError: the system has no vectors for nodes that it was not trained with.
        InputError: no new node, a type or relation that the model does not have, or a new node without edges or
            features that the model can use.
    """
    system, graph = restored.system, restored.graph
    if not restored.entry.new_nodes:
        raise SettingsError(f"{system.name} has {_instead(restored.entry)}")
    folder = output or restored.run.path / FOLDER
    if folder.resolve() in (restored.run.path.resolve(), restored.run.embeddings.resolve()):
        raise InputError(f"{folder} has the run's own vectors; choose another folder")
    given = features or FeatureFiles()
    tables = with_featured_nodes(tables, given)
    joined = join(graph, tables, source, given, alone=system.embeds_from_features)
    vectors, scoring = cast(EmbedsLater, system).embed_later(restored.model, joined.later)
    return _write(restored, tables, joined, vectors, scoring, source, folder)


def _instead(known: Entry) -> str:
    """What a system has for nodes that it makes no vectors of, and what to do."""
    if not known.vectors:
        way = "recommend RUN --history FILE" if known.recommends else "links RUN --edges FILE"
        return f"no vectors of nodes; for new ones and their edges: graphmill {way}"
    start = "" if known.closed_form else ", with training.init_from naming this run"
    start += " and training.epochs: 0, which trains nothing" if known.folds_in else ""
    others = "blend, hgt or spectral"
    if known.recommends:
        others = (
            "mmgcn or dragon, which read features of new items (for people with a history, and items that known people met: "
            "graphmill recommend --history)"
        )
    return (
        f"a vector only for nodes that it was trained with; train it again on the grown graph{start}, or use {others}"
    )


def join(
    graph: TypedGraph,
    tables: IngestResult,
    source: str,
    features: FeatureFiles | None = None,
    *,
    alone: bool = False,
    edges_alone: bool = False,
) -> Joined:
    """The nodes of a file that a graph does not have, the file's edges in the graph's relations, and their features.

    ``alone``: a node with features needs no edge to a known node. ``edges_alone``: the file may have no new node.
    """
    features = features or FeatureFiles()
    types = [t.name for t in graph.node_types]
    kinds, ids = tables.nodes["type"].cast(pa.string()).to_pylist(), tables.nodes["id"].to_pylist()
    if strange := [row for row, kind in enumerate(kinds) if kind not in types]:
        raise InputError(
            f"{source}: node '{ids[strange[0]]}' is of type '{kinds[strange[0]]}', which the model does not have; it has "
            f"{', '.join(types)}"
        )
    local, rows = np.zeros(len(ids), np.int64), list[np.ndarray]()
    for t in graph.node_types:
        of_type = np.array([row for row, kind in enumerate(kinds) if kind == t.name], np.int64)
        local[of_type] = graph.numbers_of(t.name, [ids[row] for row in of_type])
        new = of_type[local[of_type] < 0]
        local[new] = t.count + np.arange(len(new))
        rows.append(new)
    if not sum(map(len, rows)) and not edges_alone:
        raise InputError(f"{source}: all of its {len(ids):,} nodes are in the model already; there is nothing to embed")
    edges, weights = _edges(graph, tables, kinds, local, source)
    values = _features(graph, features, [[ids[row] for row in new] for new in rows])
    having = [set(features.ids(kind)) if alone else set() for kind in types]
    _require_neighbours(graph, edges, rows, ids, source, having)
    return Joined(rows, LaterNodes([len(new) for new in rows], edges, values, weights))


def _features(graph: TypedGraph, given: FeatureFiles, new: list[list[str]]) -> dict[tuple[int, str], np.ndarray]:
    result = {}
    for (kind, name), rows in given.rows.items():
        number = [t.name for t in graph.node_types].index(kind)
        trained = graph.features(kind, name)
        assert trained is not None
        values = np.zeros((len(new[number]), trained.shape[1]), np.float32)
        for place, node in enumerate(new[number]):
            if node in rows:
                values[place] = rows[node]
        result[number, name] = values
    return result


def _edges(
    graph: TypedGraph, tables: IngestResult, kinds: list[str], local: np.ndarray, source: str
) -> tuple[list[tuple[np.ndarray, np.ndarray]], list[np.ndarray]]:
    """The file's edges by relation of the graph, with their reverses if the graph has reverse relations; and their
    weights."""
    keys = {relation.key: relation.index for relation in graph.relations}
    names = tables.edges["relation"].cast(pa.string()).to_pylist()
    heads, tails = (tables.edges[name].to_numpy() for name in ("head", "tail"))
    reverses = graph.manifest["settings"]["add_reverse"] == "missing"
    result: list[list[tuple[int, int, int]]] = [[] for _ in keys]
    for row, (name, head, tail) in enumerate(zip(names, heads.tolist(), tails.tolist(), strict=True)):
        key = (kinds[head], name, kinds[tail])
        if key not in keys:
            has = ", ".join("|".join(each) for each in keys)
            raise InputError(f"{source}: the model has no relation {'|'.join(key)}; it has {has}")
        result[keys[key]].append((int(local[head]), int(local[tail]), row))
        mirror = mirror_of(key)
        if reverses and mirror in keys:
            result[keys[mirror]].append((int(local[tail]), int(local[head]), row))
    given, out, weights = weights_of(tables.edges), [], []
    for of_relation in result:
        rows = np.array(of_relation, np.int64).reshape(-1, 3)
        ends, first = np.unique(rows[:, :2], axis=0, return_index=True)
        out.append((ends[:, 0], ends[:, 1]))
        weights.append(given[rows[first, 2]])
    return out, weights


def _require_neighbours(
    graph: TypedGraph,
    edges: list[tuple[np.ndarray, np.ndarray]],
    rows: list[np.ndarray],
    ids: list[str],
    source: str,
    having: list[set[str]],
) -> None:
    types = {t.name: n for n, t in enumerate(graph.node_types)}
    count = [t.count for t in graph.node_types]
    reached = [np.zeros(len(r), bool) for r in rows]
    for relation, ends in zip(graph.relations, edges, strict=True):
        kinds = types[relation.source], types[relation.target]
        for mine, theirs in ((0, 1), (1, 0)):
            new = (ends[mine] >= count[kinds[mine]]) & (ends[theirs] < count[kinds[theirs]])
            reached[kinds[mine]][ends[mine][new] - count[kinds[mine]]] = True
    lost = [
        ids[row]
        for r, existing, reported in zip(rows, reached, having, strict=True)
        for row, ok in zip(r, existing, strict=True)
        if not ok and ids[row] not in reported
    ]
    if lost:
        displayed = ", ".join(lost[:3]) + ", …" * (len(lost) > 3)
        known = graph.node_table()["id"].cast(pa.string()).combine_chunks()
        repair = coverage("new nodes", pa.array(lost, pa.string()), "the model", known).repair
        raise InputError(
            f"{source}: {len(lost):,} of its new nodes have no edge to a node of the model ({displayed}); give such edges, "
            "or leave them out" + (f"; if they are nodes of the model, {repair}" if repair else "")
        )


def _write(
    restored: Restored,
    tables: IngestResult,
    joined: Joined,
    vectors: np.ndarray,
    scoring: dict[str, np.ndarray],
    source: str,
    folder: Path,
) -> dict[str, Any]:
    old, known = _known_vectors(restored)
    if old is not None:  # the run's vectors were rotated into the live version's space; rotate these likewise
        vectors = old.apply(vectors)
    graph = restored.graph
    known_numbers = graph.node_table()["index"].to_numpy()
    numbers = np.arange(len(vectors)) + int(np.max(known_numbers, initial=-1)) + 1
    nodes, new = grown_nodes(graph, tables, joined, ["id", "name", "type"])
    new = new.add_column(0, "index", pa.array(numbers))
    every = by_type(graph, known_numbers, numbers, joined.later)
    about = {
        "fingerprint": restored.fingerprint,
        "system": restored.manifest["system"],
        **restored.used,
        "versions": restored.manifest["versions"],
        "settings": restored.job.settings.model_dump(),
        "joined": {
            "file": Path(source).name,
            "nodes": {t.name: n for t, n in zip(graph.node_types, joined.later.counts, strict=True) if n},
            "known": graph.num_nodes,
        },
    }
    if scoring:
        about["relations"] = [list(relation.key) for relation in graph.relations]
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / MANIFEST).unlink(missing_ok=True)
        with parquet_embeddings(folder / NEW, vectors.shape[1], new.num_rows) as write:
            write(new, vectors)
        about["joined"]["new"] = {NEW: describe_file(folder / NEW)}
    return export_embeddings(
        blocks_of(by_type(graph, known, vectors, joined.later)),
        nodes.add_column(0, "index", pa.array(every)),
        vectors.shape[1],
        folder,
        restored.job.settings.export,
        about,
        {SCORING: scoring} if scoring else {},
    )


def by_type(graph: TypedGraph, known: np.ndarray, new: np.ndarray, later: LaterNodes) -> np.ndarray:
    """Rows of known nodes [nodes, d] and of new ones [new nodes, d], in the order of the grown graph: each type's new nodes
    after its known ones."""
    blocks = zip(np.split(known, [t.offset for t in graph.node_types]), np.split(new, later.first[:-1]), strict=True)
    return np.concatenate([rows for block in blocks for rows in block])


def _known_vectors(restored: Restored) -> tuple[Any, np.ndarray]:
    """The known vectors, float32 [nodes, d], from the run's export, or from the model if there is no export; and the
    rotation between the two, or None."""
    vectors = np.concatenate([block.vectors for block in cast(Any, restored.system).embeddings(restored.model)])
    folder = restored.run.embeddings
    if not (folder / MANIFEST).is_file():
        return None, vectors
    manifest = read_manifest(folder)
    if not (manifest.get("alignment") or {}).get("in_place"):
        return None, vectors
    turned = np.asarray(read_embeddings(folder).vectors)
    return fit_rotation([(vectors, turned)], vectors.shape[1]), turned


def grown_link_model(
    run: str | Path, edges: str, format: str = "", settings: Mapping[str, Any] | None = None
) -> LinkModel:
    """The model of a run on its graph and the edges of the file ``edges``, new nodes included. Nothing is trained: vectors
    of known nodes stay, and those of new ones are what ``graphmill embed`` computes.

    Raises:
        SettingsError: the system cannot score links of nodes that it was not trained with.
        InputError: the file cannot be used, or has a type or relation that the model does not have, or a new node
            without an edge to a known one.
    """
    restored = restore(run)
    name, entry = restored.system.name, restored.entry
    if not entry.scores_later:
        raise SettingsError(
            f"--edges: {name} cannot score links of nodes that it was not trained with; "
            f"{registry.names_with('scores_later')} can"
        )
    return link_model_with(restored, read_later_edges(restored.graph, edges, format, settings), edges)


def link_model_with(restored: Restored, tables: IngestResult, source: str) -> LinkModel:
    """The model of a restored run on its graph and the nodes and edges of the file ``source``, as ``tables``."""
    system, model = restored.system, restored.model
    joined = join(restored.graph, tables, source, edges_alone=True)
    graph = grown_graph(restored.graph, tables, joined, restored.run.path / GROWN)
    if restored.entry.new_nodes:
        new, arrays = cast(EmbedsLater, system).embed_later(model, joined.later)
        known = np.concatenate([block.vectors for block in system.embeddings(model)])
        vectors = by_type(restored.graph, known, new, joined.later)
        return LinkModel(
            restored.run.path,
            graph,
            registry.exported_scorer(system.name, arrays, vectors),
            restored.used,
            later_edges=True,
        )
    grown = registry.create(system.name, graph, restored.job.settings, restored.job.batching)
    grown.to(restored.job.device)
    return LinkModel(restored.run.path, graph, grown.scorer(model), restored.used, later_edges=True)


def grown_graph(graph: TypedGraph, tables: IngestResult, joined: Joined, folder: Path) -> TypedGraph:
    """Write the graph with the nodes and edges of a file into ``folder``, and open it. Splits stay; the file's edges are
    for training, that is, messages may use them. Relations keep their numbers, and a type's new nodes come last.
    """
    known = [t.count for t in graph.node_types]
    offsets = np.cumsum([0, *(n + more for n, more in zip(known, joined.later.counts, strict=True))])
    types = {t.name: number for number, t in enumerate(graph.node_types)}
    nodes, _ = grown_nodes(graph, tables, joined, ["id", "type", "name", "source"])
    nodes = nodes.append_column("index", pa.array(np.arange(len(nodes))))
    rows = [
        _rows(
            graph, joined.later, relation.index, *(int(offsets[types[t]]) for t in (relation.source, relation.target))
        )
        for relation in graph.relations
    ]
    names = pa.DictionaryArray.from_arrays(
        np.repeat(np.arange(len(rows), dtype=np.int32), [len(each["head"]) for each in rows]),
        pa.array([relation.name for relation in graph.relations]),
    )
    columns = {name: pa.array(np.concatenate([each[name] for each in rows])) for name in rows[0]}
    return build_graph(nodes, pa.table({"relation": names, **columns}), GraphSettings(add_reverse="never"), folder)


def grown_nodes(
    graph: TypedGraph, tables: IngestResult, joined: Joined, columns: list[str]
) -> tuple[pa.Table, pa.Table]:
    """Text columns of all nodes, in the order of the grown graph, and of the new ones alone."""
    texts = pa.schema([(name, pa.string()) for name in columns])
    table = graph.node_table().select(columns).cast(texts)
    new = tables.nodes.select(columns).take(pa.array(np.concatenate([*joined.rows, np.zeros(0, np.int64)]))).cast(texts)
    parts = []
    for t, first, count in zip(graph.node_types, joined.later.first, joined.later.counts, strict=False):
        parts += [table.slice(t.offset, t.count), new.slice(int(first), count)]
    return pa.concat_tables(parts), new


def _rows(graph: TypedGraph, later: LaterNodes, relation: int, source: int, target: int) -> dict[str, np.ndarray]:
    """The old and new edges of a relation, in rows of the node table, with weights if the graph has some, or else
    confidences; what it holds already is left out."""
    edges, (src, dst) = graph.edges(relation), later.edges[relation]
    old = np.asarray(edges.src, np.int64), np.asarray(edges.dst, np.int64)
    width = int(max(old[1].max(initial=0), dst.max(initial=0))) + 1
    new = ~np.isin(src * width + dst, old[0] * width + old[1])
    split = np.concatenate([np.asarray(edges.split), np.full(int(new.sum()), TRAIN, np.uint8)])
    name, strength = "confidence" if edges.weight is None else "weight", edges.strength
    strengths = {} if strength is None else {name: np.concatenate([strength, later.weights[relation][new]])}
    return strengths | {
        "head": (np.concatenate([old[0], src[new]]) + source).astype(np.int32),
        "tail": (np.concatenate([old[1], dst[new]]) + target).astype(np.int32),
        "split": split.astype(np.uint8),
    }
