"""Attributes of two graphs. Encoders are fitted to each graph, so the same attributes have other columns in another one.
A linear map brings the columns of one to those of the other, so that weights can be taken over."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from graphmill.graph.attributes import SET
from graphmill.graph.typed_graph import TypedGraph

MOST = 4096
"""Nodes of a type whose features are kept, at most."""
RIDGE = 1e-4
KnownFeatures = Mapping[str, tuple[NDArray[np.str_], NDArray[np.float32]]]
"""Node type → ids (n) and features from attributes (n, f) of some of its nodes."""


def known_features(graph: TypedGraph) -> KnownFeatures:
    """Those of at most :data:`MOST` nodes of each type with attributes, evenly spread."""
    known = {}
    for kind in graph.node_types:
        if SET not in graph.feature_sets(kind.name):
            continue
        rows = np.unique(np.linspace(0, kind.count - 1, min(MOST, kind.count)).astype(np.int64))
        ids = graph.node_table()["id"].slice(kind.offset, kind.count).to_pylist()
        features = np.asarray(graph.features(kind.name, SET))[rows]
        known[kind.name] = np.array([ids[row] for row in rows], dtype=np.str_), features
    return known


def attribute_map(before: KnownFeatures, graph: TypedGraph, kind: str) -> NDArray[np.float32] | None:
    """float32 [f, g]: M that minimises Σ ‖x M − y‖² + ridge over the nodes that are known from ``before``, where x (f) are
    their features in ``graph`` and y (g) those before. None if they are equal, or nothing is known from before."""
    if kind not in before or SET not in graph.feature_sets(kind):
        return None
    of_type, (ids, old) = graph.node_type(kind), before[kind]
    place = {
        node: row for row, node in enumerate(graph.node_table()["id"].slice(of_type.offset, of_type.count).to_pylist())
    }
    rows = np.array([place.get(str(node), -1) for node in ids])
    x, y = np.asarray(graph.features(kind, SET))[rows[rows >= 0]].astype(np.float64), old[rows >= 0].astype(np.float64)
    if not len(x) or (x.shape == y.shape and np.array_equal(x, y)):
        return None
    gram = x.T @ x
    ridge = RIDGE * max(float(np.trace(gram)) / len(gram), 1e-12) * np.eye(len(gram))
    return np.linalg.solve(gram + ridge, x.T @ y).astype(np.float32)
