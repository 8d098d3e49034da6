"""The steps of a frontier and the pass over a layer's edges, compiled."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from graphmill.kernels.frontier.arrays import Edges, Layer, Queries
from graphmill.kernels.runtime.jit import jit, jit_fast
from graphmill.kernels.runtime.threads import over_ranges

COLUMNS = 16
"""Columns of the vectors that one thread owns, at least: a line of the cache in fp32."""

_jit = jit(nogil=True, error_model="numpy")


class _Step(NamedTuple):
    """What :func:`_reach` reads and writes; see :func:`step`."""

    graph: Edges
    queries: Queries
    node: Any
    start: Any
    mass: Any
    ends: bool
    cap: int
    least: Any
    begin: Any
    rows: Any
    edges: Any
    to_node: Any
    to_mass: Any
    to_before: Any
    to_source: Any
    to_target: Any
    to_edge: Any
    to_weight: Any


def step(
    edges: Edges,
    queries: Queries,
    node: np.ndarray,
    start: np.ndarray,
    mass: np.ndarray,
    last: bool,
    cap: int,
    least: np.uint64,
) -> tuple[Layer, np.ndarray]:
    """One layer further: ``node`` int32 [n], ``start`` int64 [B + 1] and ``mass`` float64 [n] of the layer before → the
    layer and the masses of its rows. Threads own queries; every sum has the order of the edges."""
    count = len(start) - 1
    degree = np.concatenate([[0], np.cumsum(np.diff(edges.pointer)[node])])
    begin = degree[start]
    most, total = len(node) + int(degree[-1]), int(degree[-1])
    rows, used = np.zeros(count, np.int64), np.zeros(count, np.int64)
    before = node, start, mass, last, cap, least
    of_rows = np.empty(most, np.int32), np.empty(most), np.empty(most, np.int32)
    of_edges = np.empty(total, np.int32), np.empty(total, np.int32), np.empty(total, np.int64)
    to_weight = np.empty(total, np.float32)
    work = _Step(edges, queries, *before, begin, rows, used, *of_rows, *of_edges, to_weight)
    over_ranges(_reach, work, count, total)
    to_row, to_edge = np.concatenate([[0], np.cumsum(rows)]), np.concatenate([[0], np.cumsum(used)])
    result = Layer(
        np.empty(to_row[-1], np.int32),
        to_row,
        np.empty(to_row[-1], np.int32),
        *(np.empty(to_edge[-1], kind) for kind in (np.int32, np.int32, np.int32, np.float32)),
    )
    masses = np.empty(to_row[-1])
    into = (result.node, result.previous, masses, result.source, result.target, result.relation, result.weight)
    over_ranges(_collect, _Collect(work, to_row, to_edge, *into), count, total)
    return result, masses


class _Collect(NamedTuple):
    """What :func:`_collect` reads and writes."""

    work: _Step
    to_row: Any
    to_edge: Any
    node: Any
    before: Any
    mass: Any
    source: Any
    target: Any
    relation: Any
    weight: Any


@_jit
def _reach(s: Any, first: int, last: int) -> None:
    """The rows and edges of the queries ``first:last``, each from its own place in the buffers."""
    g, q = s.graph, s.queries
    place = np.full(len(g.pointer) - 1, -1, np.int32)
    for b in range(first, last):
        r0, e0 = s.start[b] + s.begin[b], s.begin[b]
        n, m = 0, 0
        low, high = q.first[b], q.last[b]
        head, tail, key = q.head[b], q.tail[b], q.key[b]
        for i in range(s.start[b], s.start[b + 1]):
            v = s.node[i]
            if not s.ends or (low <= v and v < high and (q.reads[v] or v == tail)):
                place[v] = n
                s.to_node[r0 + n], s.to_mass[r0 + n], s.to_before[r0 + n] = v, s.mass[i], i
                n += 1
        for i in range(s.start[b], s.start[b + 1]):
            u, mass = np.int64(s.node[i]), s.mass[i]
            for e in range(g.pointer[u], g.pointer[u + 1]):
                v = np.int64(g.target[e])
                if s.ends and (v < low or v >= high or not (q.reads[v] or v == tail)):
                    continue
                factor = 1.0
                if u in (head, tail) or v in (head, tail):
                    same, turned = g.relation[e] == q.relation[b], g.relation[e] == q.reverse[b]
                    pair = (u == head and v == tail) or (u == tail and v == head)
                    if pair and (q.whole_pairs or same or turned):
                        continue
                    if (u == head and same) or (v == head and turned):
                        factor *= q.out[b]
                    if (v == tail and same) or (u == tail and turned):
                        factor *= q.into[b]
                if s.least > 0 and _hash(u, v, key ^ g.kind[g.relation[e]]) < s.least:
                    continue
                at = place[v]
                if at < 0:
                    at = n
                    place[v] = n
                    s.to_node[r0 + n], s.to_mass[r0 + n], s.to_before[r0 + n] = v, 0.0, -1
                    n += 1
                weight = np.float32(g.weight[e] * factor)
                s.to_mass[r0 + at] += mass * weight
                s.to_source[e0 + m], s.to_target[e0 + m], s.to_edge[e0 + m] = i, at, e
                s.to_weight[e0 + m] = weight
                m += 1
        for i in range(n):
            place[s.to_node[r0 + i]] = -1
        if not s.ends and n > s.cap:
            n, m = _cut(s, r0, e0, n, m)
        s.rows[b], s.edges[b] = n, m


@_jit
def _cut(s: Any, r0: int, e0: int, n: int, m: int) -> tuple[int, int]:
    """Keep the ``cap`` rows of most mass, of equal ones the first, and the edges to them; in their order."""
    mass = s.to_mass[r0 : r0 + n]
    least = np.partition(mass, n - s.cap)[n - s.cap]
    ties = s.cap
    for i in range(n):
        ties -= mass[i] > least
    renumbered, k = np.full(n, -1, np.int32), 0
    for i in range(n):
        equal = mass[i] == least
        if mass[i] > least or (equal and ties > 0):
            ties -= equal
            renumbered[i] = k
            s.to_node[r0 + k], s.to_mass[r0 + k] = s.to_node[r0 + i], s.to_mass[r0 + i]
            s.to_before[r0 + k] = s.to_before[r0 + i]
            k += 1
    w = 0
    for e in range(e0, e0 + m):
        at = renumbered[s.to_target[e]]
        if at >= 0:
            s.to_source[e0 + w], s.to_target[e0 + w], s.to_edge[e0 + w] = s.to_source[e], at, s.to_edge[e]
            s.to_weight[e0 + w] = s.to_weight[e]
            w += 1
    return k, w


@_jit
def _hash(one: int, other: int, key: Any) -> Any:
    """splitmix64 of a pair in either order."""
    low, high = np.uint64(min(one, other)), np.uint64(max(one, other))
    x = ((high << np.uint64(32)) | low) ^ key
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@_jit
def _collect(c: Any, first: int, last: int) -> None:
    """Move rows and edges from the buffers' places to consecutive ones."""
    s = c.work
    for b in range(first, last):
        r0, to = s.start[b] + s.begin[b], c.to_row[b]
        for i in range(s.rows[b]):
            c.node[to + i], c.before[to + i], c.mass[to + i] = s.to_node[r0 + i], s.to_before[r0 + i], s.to_mass[r0 + i]
        e0, at = s.begin[b], c.to_edge[b]
        for i in range(s.edges[b]):
            c.source[at + i], c.target[at + i] = s.to_source[e0 + i], s.to_target[e0 + i] + to
            edge = s.to_edge[e0 + i]
            c.relation[at + i], c.weight[at + i] = s.graph.relation[edge] + s.queries.offset[b], s.to_weight[e0 + i]


class _Pass(NamedTuple):
    """What the passes over a layer's edges read and write; ``parts``: of the columns, one a thread."""

    layer: Layer
    x: Any
    w: Any
    out: Any
    to_x: Any
    to_w: Any
    parts: int


def sums(layer: Layer, x: Tensor, w: Tensor, out: Tensor) -> None:
    """``out[target] += weight · w[relation] · x[source]`` over the edges, in their order; all tensors are contiguous."""
    _over_columns(_sums, layer, x, w, out, x, w)


def gradients(layer: Layer, x: Tensor, w: Tensor, out: Tensor, to_x: Tensor, to_w: Tensor) -> None:
    """Add the gradients of :func:`sums` to ``to_x`` and ``to_w``; ``out``: the gradient of its result."""
    _over_columns(_gradients, layer, x, w, out, to_x, to_w)


def _over_columns(kernel: Any, layer: Layer, x: Tensor, w: Tensor, out: Tensor, to_x: Tensor, to_w: Tensor) -> None:
    parts = max(x.shape[1] // COLUMNS, 1)
    arrays = [t.detach().numpy() for t in (x, w, out, to_x, to_w)]
    work = _Pass(layer, arrays[0], arrays[1], arrays[2], arrays[3], arrays[4], parts)
    over_ranges(kernel, work, parts, len(layer.source) * x.shape[1])


@jit_fast
def _sums(p: Any, first: int, last: int) -> None:
    edges, a, b = p.layer, p.x.shape[1] * first // p.parts, p.x.shape[1] * last // p.parts
    for e in range(len(edges.source)):
        f = p.x.dtype.type(edges.weight[e])
        row, factor, into = p.x[edges.source[e]], p.w[edges.relation[e]], p.out[edges.target[e]]
        for k in range(a, b):
            into[k] += f * factor[k] * row[k]


@jit_fast
def _gradients(p: Any, first: int, last: int) -> None:
    edges, a, b = p.layer, p.x.shape[1] * first // p.parts, p.x.shape[1] * last // p.parts
    for e in range(len(edges.source)):
        f = p.x.dtype.type(edges.weight[e])
        u, r = edges.source[e], edges.relation[e]
        row, factor, given = p.x[u], p.w[r], p.out[edges.target[e]]
        to_row, to_factor = p.to_x[u], p.to_w[r]
        for k in range(a, b):
            share = f * given[k]
            to_row[k] += share * factor[k]
            to_factor[k] += share * row[k]
