"""Fixtures of the graph tests."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from graphmill.graph.build import build_graph
from graphmill.graph.settings import GraphSettings
from graphmill.graph.typed_graph import TypedGraph


@pytest.fixture
def build(tmp_path: Path) -> Callable[..., TypedGraph]:
    """``build(nodes, edges, features={...}, **settings)`` builds below ``tmp_path``, each time in a new directory."""
    built = []

    def _build(nodes: pa.Table, edges: pa.Table, features: Any = None, **settings: Any) -> TypedGraph:
        built.append(tmp_path / f"graph{len(built)}")
        return build_graph(nodes, edges, GraphSettings(**settings), built[-1], features)

    return _build


def triples_of(graph: TypedGraph) -> list[tuple[int, str, int, int]]:
    """Every edge as (index of the source node, relation, index of the target node, split), sorted."""
    index = graph.node_table()["index"].to_pylist()
    out = []
    for relation in graph.relations:
        edges = graph.edges(relation)
        source, target = graph.node_type(relation.source).offset, graph.node_type(relation.target).offset
        out += [
            (index[source + s], relation.name, index[target + d], int(split))
            for s, d, split in zip(edges.src.tolist(), edges.dst.tolist(), edges.split, strict=True)
        ]
    return sorted(out)
