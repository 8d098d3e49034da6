"""A run's graph with the nodes and edges of a file that came after the training, and its model on it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa

from graphmill.errors import SettingsError
from graphmill.graph.build import build_graph
from graphmill.graph.later_nodes import LaterNodes
from graphmill.graph.settings import GraphSettings
from graphmill.graph.splits import TRAIN
from graphmill.graph.typed_graph import TypedGraph
from graphmill.ingest.tables import IngestResult
from graphmill.runs.export import Restored, restore
from graphmill.systems import registry
from graphmill.usage.embed import EmbedsLater, Joined, by_type, join
from graphmill.usage.joining_nodes import read_later_edges
from graphmill.usage.links import LinkModel

FOLDER = "grown_graph"
"""Inside the run directory: the graph of the last file."""


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
    graph = grown_graph(restored.graph, tables, joined, restored.run.path / FOLDER)
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
    known, first = [t.count for t in graph.node_types], joined.later.first
    offsets = np.cumsum([0, *(n + more for n, more in zip(known, joined.later.counts, strict=True))])
    types = {t.name: number for number, t in enumerate(graph.node_types)}
    table = graph.node_table().select(["id", "type", "name", "source"])
    new = tables.nodes.select(table.column_names).take(pa.array(np.concatenate([*joined.rows, np.zeros(0, np.int64)])))
    plain = [(name, pa.string()) for name in table.column_names]
    table, new = table.cast(pa.schema(plain)), new.cast(pa.schema(plain))
    parts = []
    for number, t in enumerate(graph.node_types):
        parts += [table.slice(t.offset, t.count), new.slice(int(first[number]), joined.later.counts[number])]
    nodes = pa.concat_tables(parts)
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
