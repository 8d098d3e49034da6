"""A run's graph with the nodes and edges of a file that came after the training, for systems that score them untrained."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from graphmill.errors import SettingsError
from graphmill.graph.build import build_graph
from graphmill.graph.settings import GraphSettings
from graphmill.graph.splits import TRAIN
from graphmill.graph.typed_graph import TypedGraph
from graphmill.ingest.public_readers import read_edges
from graphmill.runs.export import restore
from graphmill.systems import registry
from graphmill.usage.embed import join
from graphmill.usage.links import LinkModel

FOLDER = "grown_graph"
"""Inside the run directory: the graph of the last file."""


def grown_link_model(
    run: str | Path, edges: str, format: str = "", settings: Mapping[str, Any] | None = None
) -> LinkModel:
    """The model of a run on its graph and the edges of the file ``edges``, new nodes included. Nothing is trained.

    Raises:
        SettingsError: the system has vectors of the nodes it was trained with, and cannot score others.
        InputError: the file cannot be used, or has a type or relation that the model does not have, or a new node
            without an edge to a known one.
    """
    restored = restore(run)
    name = restored.system.name
    if registry.entry(name).vectors:
        raise SettingsError(
            f"--edges: {name} scores the nodes and edges that it was trained with; train nbfnet or knn, which score new "
            "ones without training, or embed new nodes (graphmill embed)"
        )
    graph = grown_graph(restored.graph, edges, restored.run.path / FOLDER, format, settings)
    system = registry.create(name, graph, restored.job.settings, restored.job.batching)
    system.to(restored.job.device)
    return LinkModel(restored.run.path, graph, system.scorer(restored.model), restored.used)


def grown_graph(
    graph: TypedGraph, edges: str, folder: Path, format: str = "", settings: Mapping[str, Any] | None = None
) -> TypedGraph:
    """Write the graph with the nodes and edges of a file into ``folder``, and open it. Splits stay; the file's edges are
    for training, that is, messages may use them. Relations keep their numbers, and a type's new nodes come last.

    Raises:
        InputError: as :func:`grown_link_model`.
    """
    tables = read_edges(edges, format, **(settings or {}))
    joined = join(graph, tables, edges, edges_alone=True)
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
        _rows(graph, number, *later, offsets[types[relation.source]], offsets[types[relation.target]])
        for number, (relation, later) in enumerate(zip(graph.relations, joined.later.edges, strict=True))
    ]
    names = pa.DictionaryArray.from_arrays(
        np.repeat(np.arange(len(rows), dtype=np.int32), [len(each["head"]) for each in rows]),
        pa.array([relation.name for relation in graph.relations]),
    )
    columns = {name: pa.array(np.concatenate([each[name] for each in rows])) for name in ("head", "tail", "split")}
    return build_graph(nodes, pa.table({"relation": names, **columns}), GraphSettings(add_reverse="never"), folder)


def _rows(
    graph: TypedGraph, relation: int, src: np.ndarray, dst: np.ndarray, source: int, target: int
) -> dict[str, np.ndarray]:
    """The old and new edges of a relation, in rows of the node table; what the graph holds already is left out."""
    edges = graph.edges(relation)
    old = np.asarray(edges.src, np.int64), np.asarray(edges.dst, np.int64)
    width = int(max(old[1].max(initial=0), dst.max(initial=0))) + 1
    new = ~np.isin(src * width + dst, old[0] * width + old[1])
    split = np.concatenate([np.asarray(edges.split), np.full(int(new.sum()), TRAIN, np.uint8)])
    return {
        "head": (np.concatenate([old[0], src[new]]) + source).astype(np.int32),
        "tail": (np.concatenate([old[1], dst[new]]) + target).astype(np.int32),
        "split": split.astype(np.uint8),
    }
