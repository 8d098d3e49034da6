"""The deletion test of an explanation: the score without the edges that it names, and without as many others nearby."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from graphmill.explain.explanation import Explanation, LinkExplainer
from graphmill.graph.typed_graph import TypedGraph


def falls(explainer: LinkExplainer, why: Explanation, seed: int = 0) -> tuple[float, float]:
    """How far the score falls without the listed edges, and without as many others around the two nodes."""
    listed = np.array([e.pair for e in why.evidence], np.int64)
    others = np.setdiff1d(pairs_around(explainer.graph, why.head, why.tail), listed)
    drawn = np.random.default_rng(seed).choice(others, min(len(listed), len(others)), replace=False)
    nothing = np.zeros(0, np.int64)
    whole, *without = (
        explainer.score_without(why.relation, why.head, why.tail, gone) for gone in (nothing, listed, drawn)
    )
    return whole - without[0], whole - without[1]


def pairs_around(graph: TypedGraph, *nodes: int, neighbors: bool = True) -> np.ndarray:
    """int64: undirected pairs with a training edge that touches one of the nodes (rows of the node table) or their
    neighbours."""
    reached = np.zeros(graph.num_nodes, bool)
    reached[list(nodes)] = True
    if neighbors:
        near = reached.copy()
        for src, dst, _ in _training(graph):
            reached[src[near[dst]]] = True
            reached[dst[near[src]]] = True
    return np.unique(
        np.concatenate([np.zeros(0, np.int64), *(p[reached[s] | reached[d]] for s, d, p in _training(graph))])
    )


def _training(graph: TypedGraph) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    for relation in graph.relations:
        edges = graph.edges(relation)
        kept = np.asarray(edges.split) == 0
        yield *graph.training_edges(relation, everywhere=True), np.asarray(edges.pair, np.int64)[kept]
