"""A graph without some of its nodes: what it was before these joined."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa

from graphmill.graph.build import build_graph
from graphmill.graph.settings import GraphSettings
from graphmill.graph.typed_graph import TypedGraph
from graphmill.ingest.tables import feature_key, features_schema


def before(
    graph: TypedGraph, joined: Collection[str], out: Path, renamed: Mapping[str, str] | None = None
) -> TypedGraph:
    """``graph`` without the nodes whose ids are in ``joined``, and with the relations ``renamed``; splits and features
    stay."""
    table = graph.node_table().select(["index", "id", "type", "name", "source"])
    kept = np.array([node not in joined for node in table["id"].to_pylist()])
    place = np.where(kept, np.cumsum(kept) - 1, -1)
    nodes = table.filter(pa.array(kept)).set_column(0, "index", pa.array(np.arange(kept.sum())))
    names, columns = [], {"head": [], "tail": [], "split": []}
    for relation in graph.relations:
        edges = graph.edges(relation)
        ends = [place[np.asarray(x) + graph.node_type(kind).offset]
                for x, kind in ((edges.src, relation.source), (edges.dst, relation.target))]  # fmt: skip
        held = (ends[0] >= 0) & (ends[1] >= 0)
        names += [(renamed or {}).get(relation.name, relation.name)] * int(held.sum())
        for name, values in zip(columns, (*ends, np.asarray(edges.split)), strict=True):
            columns[name].append(values[held])
    kinds = {"head": np.int32, "tail": np.int32, "split": np.uint8}
    arrays = {name: pa.array(np.concatenate(parts).astype(kinds[name])) for name, parts in columns.items()}
    features = {}
    for kind in graph.node_types:
        for name in graph.feature_sets(kind.name):
            values, rows = graph.features(kind.name, name), place[kind.offset : kind.offset + kind.count]
            mine = (rows >= 0) & graph.feature_mask(kind.name, name)
            width = values.shape[1]
            lists = pa.FixedSizeListArray.from_arrays(pa.array(np.asarray(values)[mine].reshape(-1)), width)
            features[feature_key(kind.name, name)] = pa.table(
                [pa.array(rows[mine].astype(np.int32)), lists], features_schema(width)
            )
    edges_table = pa.table({"relation": pa.array(names).dictionary_encode(), **arrays})
    return build_graph(nodes, edges_table, GraphSettings(add_reverse="never"), out, features)
