"""The nodes and edges that propagation from a head reaches, layer by layer, at most ``cap`` nodes a layer.

Which nodes stay is decided by path weight, as AdaProp (Zhang et al. 2023) and A*Net (Zhu et al. 2023) do it by learned
scores: a node's mass is its mass one layer before plus Σ mass(u) · weight over its edges (u, v).
"""

from __future__ import annotations

import numpy as np

from graphmill.kernels.frontier.arrays import Edges as Edges
from graphmill.kernels.frontier.arrays import Layer as Layer
from graphmill.kernels.frontier.arrays import Queries as Queries
from graphmill.kernels.runtime.threads import has_numba


def frontiers(edges: Edges, queries: Queries, layers: int, cap: int, drop: float = 0.0) -> list[Layer]:
    """The layers of a batch of queries. ``cap`` does not count in the last layer; ``drop``: share of the node pairs
    whose edges of a kind are left out, by a hash of the pair, the kind and the query's key. The other edges weigh more by
    1 / (1 − ``drop``), so that sums over edges keep their mean, as in dropout."""
    step = _step
    if has_numba():
        from graphmill.kernels.frontier import cpu

        step = cpu.step
    count = len(queries.head)
    node, start = queries.head.astype(np.int32), np.arange(count + 1, dtype=np.int64)
    mass, result = np.ones(count), []
    least = np.uint64(min(int(drop * 2.0**64), 2**64 - 1))
    for number in range(layers):
        layer, mass = step(edges, queries, node, start, mass, number == layers - 1, cap, least)
        node, start = layer.node, layer.start
        result.append(layer._replace(weight=layer.weight / np.float32(1.0 - drop)) if drop else layer)
    return result


def kept_pairs(one: np.ndarray, other: np.ndarray, key: np.ndarray, least: np.uint64) -> np.ndarray:
    """bool: whether the pair's hash is at least ``least``; the order of the pair does not count (splitmix64)."""
    low, high = np.minimum(one, other).astype(np.uint64), np.maximum(one, other).astype(np.uint64)
    with np.errstate(over="ignore"):
        x = ((high << np.uint64(32)) | low) ^ key
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return (x ^ (x >> np.uint64(31))) >= least


def _step(
    edges: Edges,
    queries: Queries,
    node: np.ndarray,
    start: np.ndarray,
    mass: np.ndarray,
    last: bool,
    cap: int,
    least: np.uint64,
) -> tuple[Layer, np.ndarray]:
    """The plain form of :func:`graphmill.kernels.frontier.cpu.step`, by sorting."""
    count, nodes = len(start) - 1, len(edges.pointer) - 1
    query = np.repeat(np.arange(count), np.diff(start))
    degree = np.diff(edges.pointer)[node]
    source = np.repeat(np.arange(len(node)), degree)
    edge = np.arange(len(source)) + np.repeat(edges.pointer[node] - (np.cumsum(degree) - degree), degree)
    asking, u, v, r = query[source], node[source].astype(np.int64), edges.target[edge], edges.relation[edge]
    head, tail = queries.head[asking], queries.tail[asking]
    is_query = ((u == head) & (v == tail)) | ((u == tail) & (v == head))
    same, turned = r == queries.relation[asking], r == queries.reverse[asking]
    if not queries.whole_pairs:
        is_query &= same | turned
    factor = np.where(((u == head) & same) | ((v == head) & turned), queries.out[asking], 1.0)
    factor *= np.where(((v == tail) & same) | ((u == tail) & turned), queries.into[asking], 1.0)
    weight = (edges.weight[edge] * factor).astype(np.float32)
    kept = ~is_query & kept_pairs(u, v, queries.key[asking] ^ edges.kind[r], least)
    if last:
        kept &= (v >= queries.first[asking]) & (v < queries.last[asking]) & (queries.reads[v] | (v == tail))
    source, edge, asking, v, weight = source[kept], edge[kept], asking[kept], v[kept], weight[kept]
    stays = np.ones(len(node), bool)
    if last:
        stays = (node >= queries.first[query]) & (node < queries.last[query])
        stays &= queries.reads[node] | (node == queries.tail[query])
    held_rows = np.flatnonzero(stays)
    # Rows: a query's old nodes in their order, then new nodes in the order in which edges reach them.
    both = np.concatenate([query[held_rows] * nodes + node[held_rows], asking * nodes + v])
    keys, first = np.unique(both, return_index=True)
    order = np.lexsort((first, keys // nodes))
    row = np.empty(len(keys), np.int64)
    row[order] = np.arange(len(keys))
    place = row[np.searchsorted(keys, both)]
    target = place[len(held_rows) :]
    amount = np.concatenate([mass[held_rows], mass[source] * weight])
    masses = np.bincount(place, amount, len(keys))
    of_row = (keys // nodes)[order]
    before = np.full(len(keys), -1, np.int32)
    before[place[: len(held_rows)]] = held_rows
    keep = np.ones(len(keys), bool)
    for number in range(0 if last else count):
        rows = np.flatnonzero(of_row == number)
        if len(rows) > cap:
            best = rows[np.argsort(-masses[rows], kind="stable")]
            keep[best[cap:]] = False
    renumbered = np.cumsum(keep) - 1
    used = keep[target]
    result = Layer(
        (keys % nodes)[order][keep].astype(np.int32),
        np.searchsorted(of_row[keep], np.arange(count + 1)).astype(np.int64),
        before[keep],
        source[used].astype(np.int32),
        renumbered[target[used]].astype(np.int32),
        (edges.relation[edge] + queries.offset[asking])[used].astype(np.int32),
        weight[used],
    )
    return result, masses[keep]
