"""Picks in-edges of nodes for a sample: uniformly without replacement, as a pure function of a key.

Each edge has a priority, a hash of (key, number of the edge). A node takes the edges with the smallest priorities, so
the choice does not depend on the order of computation.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from graphmill.graph.splits import GOLDEN, mix_bits
from graphmill.sampling.sequences import ranges

ALL = -1
"""The fan-out that takes every edge."""
TOGETHER = 1 << 20
"""Number of edges whose priorities are sorted at a time (about 40 bytes each). A node with more edges is sorted alone."""


class InEdges(NamedTuple):
    """One relation's edges by destination: those into node v are ``indptr[v] .. indptr[v + 1] − 1``.

    ``src`` int32 [E] local numbers; ``pair`` int32 [E] undirected pairs; ``split`` uint8 [E]; only edges with split 0
    carry messages. Arrays may be mapped from files; only the requested rows are read.
    """

    source_type: int
    target_type: int
    indptr: np.ndarray
    src: np.ndarray
    pair: np.ndarray
    split: np.ndarray


def priorities(numbers: np.ndarray, key: int) -> np.ndarray:
    """uint64 like ``numbers`` (int64): SplitMix64 of (key + number), distinct for distinct numbers."""
    return mix_bits(numbers.astype(np.uint64) * GOLDEN + np.uint64(key))


def open_edges(edges: InEdges, nodes: np.ndarray, masked: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Positions of all usable edges into ``nodes``, and the index of each edge's node in ``nodes`` (both int64, ascending).

    ``masked`` bool [pairs] marks pairs without messages; empty for none.
    """
    starts, stops = edges.indptr[nodes], edges.indptr[nodes + 1]
    result = ranges(starts, stops)
    rows = np.repeat(np.arange(len(nodes)), stops - starts)
    usable = edges.split[result] == 0
    if len(masked):
        usable &= ~masked[edges.pair[result]]
    return result[usable], rows[usable]


def pick(edges: InEdges, nodes: np.ndarray, fanout: int, key: int, masked: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """At most ``fanout`` edges into each node, uniformly without replacement: positions and rows, int64.

    ``nodes`` int64. Rows are indices into it, ascending; positions of edges ascend within a row. ``masked``: as in
    :func:`open_edges`.
    """
    if fanout == ALL:
        return open_edges(edges, nodes, masked)
    if fanout == 0 or not len(nodes):
        none = np.zeros(0, np.int64)
        return none, none
    ends = np.cumsum(edges.indptr[nodes + 1] - edges.indptr[nodes])
    cuts = np.flatnonzero(np.diff(ends // TOGETHER)) + 1
    parts = [_smallest(edges, part, fanout, key, masked) for part in np.split(nodes, cuts)]
    firsts = np.concatenate([[0], cuts])
    return np.concatenate([result for result, _ in parts]), np.concatenate(
        [rows + first for (_, rows), first in zip(parts, firsts, strict=True)]
    )


def _smallest(
    edges: InEdges, nodes: np.ndarray, fanout: int, key: int, masked: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    result, rows = open_edges(edges, nodes, masked)
    order = np.lexsort((priorities(result, key), rows))
    counts = np.bincount(rows, minlength=len(nodes))
    rank = np.arange(len(result)) - np.repeat(np.cumsum(counts) - counts, counts)
    chosen = np.sort(order[rank < fanout])
    return result[chosen], rows[chosen]
