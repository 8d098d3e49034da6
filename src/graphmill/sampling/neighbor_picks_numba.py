"""``neighbor_picks.pick``, compiled for the CPU: one pass over a node's edges, a heap of the smallest priorities."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphmill.kernels.runtime.jit import jit
from graphmill.sampling.in_edges import FIRST, GOLDEN, SECOND, InEdges

_U = np.uint64
_jit = jit(nogil=True, error_model="numpy")


def pick(edges: InEdges, nodes: np.ndarray, fanout: int, key: int, masked: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """See :func:`graphmill.sampling.neighbor_picks.pick`; ``fanout`` is at least 1."""
    room = int(np.minimum(edges.indptr[nodes + 1] - edges.indptr[nodes], fanout).sum())
    found, rows = np.empty(room, np.int64), np.empty(room, np.int64)
    count = _pick(
        edges.indptr, edges.pair, edges.split, nodes, fanout, _U(key & 0xFFFF_FFFF_FFFF_FFFF), masked, found, rows
    )
    return found[:count], rows[:count]


@_jit
def _priority(edge, key):  # type: ignore[no-untyped-def]
    x = (_U(edge) + _U(1)) * _U(GOLDEN) + key
    x = (x ^ (x >> _U(30))) * _U(FIRST)
    x = (x ^ (x >> _U(27))) * _U(SECOND)
    return x ^ (x >> _U(31))


@_jit
def _sink(heap, places, at, size):  # type: ignore[no-untyped-def]
    """Restore the heap (the largest priority first) below ``at``."""
    while True:
        child = 2 * at + 1
        if child >= size:
            return
        if child + 1 < size and heap[child + 1] > heap[child]:
            child += 1
        if heap[child] <= heap[at]:
            return
        heap[at], heap[child] = heap[child], heap[at]
        places[at], places[child] = places[child], places[at]
        at = child


@_jit
def _pick(  # type: ignore[no-untyped-def]
    indptr: Any, pair: Any, split: Any, nodes: Any, fanout: int, key: Any, masked: Any, found: Any, rows: Any
):
    heap, places = np.empty(fanout, np.uint64), np.empty(fanout, np.int64)
    masks = masked.shape[0] > 0
    count = 0
    for row in range(nodes.shape[0]):
        start, stop = indptr[nodes[row]], indptr[nodes[row] + 1]
        taken = 0
        for e in range(start, stop):
            if split[e] != 0 or (masks and masked[pair[e]]):
                continue
            if stop - start <= fanout:
                places[taken] = e
                taken += 1
                continue
            p = _priority(e, key)
            if taken < fanout:
                heap[taken] = p
                places[taken] = e
                taken += 1
                if taken == fanout:
                    for at in range(fanout // 2 - 1, -1, -1):
                        _sink(heap, places, at, fanout)
            elif p < heap[0]:
                heap[0] = p
                places[0] = e
                _sink(heap, places, 0, fanout)
        # Ascending, by insertion: few and nearly sorted.
        for i in range(taken):
            e = places[i]
            at = count + i
            while at > count and found[at - 1] > e:
                found[at] = found[at - 1]
                at -= 1
            found[at] = e
            rows[count + i] = row
        count += taken
    return count
