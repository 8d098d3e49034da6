"""Pairs of embeddings whose difference is known: spectral embeddings of random graphs with communities.

Seeds act as they do in training: each weighs the edges in its own way and turns the space at random.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from graphmill.evaluation.embedding_files import Embeddings
from graphmill.graph.sorted_unique import in_sorted, sorted_unique
from graphmill.graph.summary import GraphSummary

TYPES = ("drug", "disease", "gene")
PER_TYPE = 150
NODES = PER_TYPE * len(TYPES)
DIM = 16
DEGREE = 24


@dataclass(frozen=True)
class Pair:
    """Before and after, and the graphs that they were made of."""

    before: Embeddings
    after: Embeddings
    graph_before: GraphSummary
    graph_after: GraphSummary


Edges = NDArray[np.int64]
Rng = np.random.Generator


def edges_of(rng: Rng) -> Edges:
    """int64 (E × 2), low < high: more likely between nodes near each other in a latent space."""
    places = rng.normal(size=(NODES, 6))
    near = np.exp(-np.square(places[:, None] - places[None]).sum(-1) / 3)
    near *= NODES * DEGREE / near.sum()
    low, high = np.triu_indices(NODES, 1)
    chosen = rng.random(len(low)) < near[low, high]
    return np.column_stack((low[chosen], high[chosen]))


def embed(edges: Edges, rng: Rng) -> NDArray[np.float32]:
    """(nodes × 16): a spectral embedding under random edge weights, turned at random."""
    weights = np.zeros((NODES, NODES))
    weights[edges[:, 0], edges[:, 1]] = rng.gamma(2.0, size=len(edges))
    weights += weights.T
    degree = np.sqrt(weights.sum(1) + 1.0)
    values, vectors = np.linalg.eigh(weights / degree[:, None] / degree[None])
    best = np.argsort(values)[::-1][1 : DIM + 1]
    turned, _ = np.linalg.qr(rng.normal(size=(DIM, DIM)))
    return np.asarray(vectors[:, best] * values[best] @ turned * np.sqrt(NODES), np.float32)


def thinned(edges: Edges, share: float, rng: Rng) -> Edges:
    """The edges without ``share`` of them."""
    return edges[rng.random(len(edges)) >= share]


def embeddings(vectors: NDArray[np.float32]) -> Embeddings:
    """The vectors with ids and types."""
    ids = np.array([f"n{i}" for i in range(NODES)], dtype=object)
    types = np.repeat(np.arange(len(TYPES), dtype=np.int32), PER_TYPE)
    return Embeddings(ids, ids, types, TYPES, vectors, np.arange(NODES))


def summary(edges: Edges) -> GraphSummary:
    """What a typed graph of these edges would be summarised as."""
    pairs = sorted_unique((edges[:, 0] * NODES + edges[:, 1]).astype(np.uint64))
    degrees = np.bincount(edges.reshape(-1), minlength=NODES).astype(np.int32)
    counts = dict.fromkeys(TYPES, PER_TYPE)
    return GraphSummary(
        str(hash(pairs.tobytes())), counts, {"all": len(edges)}, pairs, in_sorted(pairs, pairs), degrees
    )


def _pair(before: NDArray[np.float32], after: NDArray[np.float32], old: Edges, new: Edges) -> Pair:
    return Pair(embeddings(before), embeddings(after), summary(old), summary(new))


def _rotation(rng: Rng) -> Pair:
    edges = edges_of(rng)
    vectors = embed(edges, rng)
    turned, _ = np.linalg.qr(rng.normal(size=(DIM, DIM)))
    return _pair(vectors, np.asarray(vectors @ turned, np.float32), edges, edges)


def _another_seed(rng: Rng) -> Pair:
    edges = edges_of(rng)
    return _pair(embed(edges, rng), embed(edges, rng), edges, edges)


def _permuted(rng: Rng) -> Pair:
    edges = edges_of(rng)
    return _pair(embed(edges, rng), embed(edges, rng)[rng.permutation(NODES)], edges, edges)


def _permuted_within_types(rng: Rng) -> Pair:
    edges = edges_of(rng)
    order = np.concatenate([i * PER_TYPE + rng.permutation(PER_TYPE) for i in range(len(TYPES))])
    return _pair(embed(edges, rng), embed(edges, rng)[order], edges, edges)


def _lost(share: float) -> Callable[[Rng], Pair]:
    def draw(rng: Rng) -> Pair:
        edges = edges_of(rng)
        fewer = thinned(edges, share, rng)
        return _pair(embed(edges, rng), embed(fewer, rng), edges, fewer)

    return draw


def _warm(distance: float) -> Callable[[Rng], Pair]:
    """Half of the edges are gone, but the vectors began where they were and went a little way only."""

    def draw(rng: Rng) -> Pair:
        edges = edges_of(rng)
        before = embed(edges, rng)
        noise = distance * before.std() * rng.normal(size=before.shape)
        return _pair(before, np.asarray(before + noise, np.float32), edges, thinned(edges, 0.5, rng))

    return draw


def _unchanged(rng: Rng) -> Pair:
    edges = edges_of(rng)
    vectors = embed(edges, rng)
    return _pair(vectors, vectors.copy(), edges, edges)


def _other_model(rng: Rng) -> Pair:
    """The same graph, trained so badly that little of it is left in the vectors."""
    edges = edges_of(rng)
    after = embed(edges, rng)
    after += 1.2 * after.std() * rng.normal(size=after.shape).astype(np.float32)
    return _pair(embed(edges, rng), after, edges, edges)


CASES: dict[str, tuple[str, Callable[[Rng], Pair]]] = {
    "the same file": ("unchanged", _unchanged),
    "a rotation": ("rotation_only", _rotation),
    "another seed": ("moved_little", _another_seed),
    "permuted ids": ("moved", _permuted),
    "ids permuted within types": ("moved", _permuted_within_types),
    "5 % of the data lost": ("data_lost", _lost(0.05)),
    "50 % of the data lost": ("data_lost", _lost(0.5)),
    "a warm start on half of the data": ("data_lost", _warm(0.15)),
    "a warm start that changed most neighbours": ("data_lost", _warm(0.5)),
    "a worse training": ("moved", _other_model),
}
"""What is drawn → the name it has to be given, and how it is drawn."""
