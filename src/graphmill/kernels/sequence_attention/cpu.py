"""Causal attention, plain and with relative times, for the CPU, compiled. A sequence's rows stay in the L1 and L2 caches.

Each query is multiplied only with the keys up to its own row, so there is no padded or masked matrix of weights. Keys
and values are transposed if a query needs all of them, so that loops run along memory. Eight queries are processed at a
time. With times, an interval's row of R is looked up on demand. The softmax is kept for the backward pass; dropout's
words are recomputed.

Threads take whole sequences, in a fixed number of pieces with about equal work, so results do not depend on the number
of threads. fp32 or float64. The formulas are those of ``sequence_attention`` and ``sequence_attention.times``.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from torch import Tensor

from graphmill.kernels.runtime.jit import jit_fast
from graphmill.kernels.runtime.register_block import register_block
from graphmill.kernels.runtime.team import over_ranges
from graphmill.kernels.runtime.vector_math import exponential, first_of, highest, keep, larger, total
from graphmill.kernels.runtime.vectors import (
    LANES,
    address,
    hold,
    like,
    load,
    load_first,
    padded,
    spread,
    spread_at,
    store,
    store_first,
)
from graphmill.kernels.runtime.words import Key, threshold_and_scale

if TYPE_CHECKING:
    from graphmill.kernels.sequence_attention import Bucket

_U = np.uint64
_PIECES = 16
GROUP = 8
"""Number of queries that are processed at a time."""
_eight_rows = register_block(GROUP, 1)


class Plan(NamedTuple):
    """The layout of a batch's sequences.

    ``sequences`` int64 [S, 4]: first row, length, offset of its softmax, offset in its bucket's mask. ``bucket`` int64
    [S]: the bucket of each sequence. ``bounds`` int64 [pieces + 1]: sequences of each piece. ``shares``: size of the
    softmax of all sequences. ``longest``: the longest length.
    """

    sequences: np.ndarray
    bucket: np.ndarray
    bounds: np.ndarray
    shares: int
    longest: int


_Qkv = namedtuple("_Qkv", "q k v stride_q stride_k stride_v")
_Numbers = namedtuple("_Numbers", "sequences words bounds longest heads width scale threshold kept")
_Timed = namedtuple("_Timed", "times span keys values")
_Forward = namedtuple("_Forward", "qkv out shares numbers timed")
_Backward = namedtuple("_Backward", "qkv gradient shares packed into_keys into_values numbers timed")


class Times(NamedTuple):
    """The times int64 [R], the longest interval, and the tables [span + 1, d] of keys and of values."""

    times: Tensor
    span: int
    keys: Tensor
    values: Tensor


@lru_cache(maxsize=16)
def plan(buckets: tuple[Bucket, ...], heads: int) -> Plan:
    """The plan of a batch. It is cached because every layer asks for the same buckets."""
    parts, shares = [], 0
    for bucket in buckets:
        number = np.arange(bucket.count)
        square = heads * bucket.length * (-(-bucket.length // LANES) * LANES)
        columns = (
            bucket.start + number * bucket.length,
            np.full(bucket.count, bucket.length),
            shares + number * square,
            number * heads * bucket.length**2,
        )
        parts.append(np.stack(columns, axis=1))
        shares += bucket.count * square
    sequences = np.concatenate(parts).astype(np.int64)
    work = np.cumsum(sequences[:, 1] ** 2 + 16 * sequences[:, 1])
    inner = np.searchsorted(work, np.linspace(0, work[-1], _PIECES + 1)[1:-1], side="right")
    bounds = np.concatenate([[0], inner, [len(sequences)]]).astype(np.int64)
    bucket_of = np.repeat(np.arange(len(buckets)), [bucket.count for bucket in buckets])
    return Plan(sequences, bucket_of, bounds, shares, int(sequences[:, 1].max()))


def forward(
    query: Tensor, key: Tensor, value: Tensor, where: Plan, heads: int, p: float, keys: Sequence[Key],
    times: Times | None, keep: bool,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """[R, d] each, with contiguous rows → output [R, d] and, with ``keep``, the softmax.

    ``keys``: dropout keys of each bucket's mask over [count · heads, length, length].
    """
    rows, dim = query.shape
    out = query.new_empty(rows, dim)
    shares = query.new_empty(where.shares if keep else 0)
    numbers, timed = _numbers(query, where, heads, p, keys), _times(times, query, heads)
    call = _Forward(_rows(query, key, value), out.view(-1).numpy(), shares.numpy(), numbers, timed)
    over_ranges(_forward, call, len(where.bounds) - 1, where.shares * dim)
    return out, shares


def backward(
    query: Tensor, key: Tensor, value: Tensor, gradient: Tensor, shares: Tensor, where: Plan, heads: int, p: float,
    keys: Sequence[Key], times: Times | None,
) -> tuple[Tensor, Tensor | None, Tensor | None]:  # fmt: skip
    """Gradients of query, key and value in one [R, 3 · d], and gradients of the two tables."""
    rows, dim = query.shape
    packed = query.new_empty(rows, 3 * dim)
    gradient = gradient.contiguous()
    shape = (0, 0, 0) if times is None else (heads, len(times.keys), dim // heads)
    tables = query.new_zeros(2, 0 if times is None else _PIECES, *shape)
    sums = (tables[0].view(-1).numpy(), tables[1].view(-1).numpy())
    more = gradient.view(-1).numpy(), shares.numpy(), packed.view(-1).numpy(), *sums
    rest = _numbers(query, where, heads, p, keys), _times(times, query, heads)
    over_ranges(_backward, _Backward(_rows(query, key, value), *more, *rest), len(where.bounds) - 1, where.shares * dim)
    into = [None, None] if times is None else [t.sum(0).transpose(0, 1).reshape(-1, dim) for t in tables]
    return packed, into[0], into[1]


def _numbers(like: Tensor, where: Plan, heads: int, p: float, keys: Sequence[Key]) -> _Numbers:
    width = like.shape[1] // heads
    kind = like.detach()[:0].numpy().dtype.type
    threshold, scale = threshold_and_scale(p)
    words = np.array(keys, dtype=np.uint32).reshape(-1, 2)[where.bucket] if p > 0.0 else np.empty((0, 2), np.uint32)
    plain = (where.sequences, words, where.bounds, where.longest, heads, width)
    return _Numbers(*plain, kind(width**-0.5), np.uint32(threshold), kind(scale))


def _times(times: Times | None, like: Tensor, heads: int) -> _Timed:
    if times is None:
        empty = like.detach().new_empty(0).numpy()
        return _Timed(np.empty(0, np.int64), 0, empty, empty)
    tables = (t.detach().view(len(t), heads, -1).transpose(0, 1).reshape(-1).numpy() for t in times[2:])
    return _Timed(times.times.contiguous().numpy(), times.span, *tables)


def _rows(query: Tensor, key: Tensor, value: Tensor) -> _Qkv:
    return _Qkv(_flat(query), _flat(key), _flat(value), query.stride(0), key.stride(0), value.stride(0))


def _flat(x: Tensor) -> np.ndarray:
    """A flat view of the memory from the first element to the last."""
    if not x.numel():
        return x.detach().reshape(-1).numpy()
    return x.detach().as_strided(((len(x) - 1) * x.stride(0) + x.shape[1],), (1,)).numpy()


@jit_fast
def _columns(source: Any, stride: int, start: int, column: int, width: int, length: int, out: Any) -> None:
    """Write to ``out`` the transpose of one head of some rows, in strips of 16 columns, zero-padded."""
    for j in range(length):
        at, to = _U((start + j) * stride + column), _U(j // LANES * width * LANES + j % LANES)
        for c in range(_U(width)):
            out[to + c * _U(LANES)] = source[at + c]
    for j in range(length, (length + LANES - 1) // LANES * LANES):
        to = _U(j // LANES * width * LANES + j % LANES)
        for c in range(_U(width)):
            out[to + c * _U(LANES)] = 0


@jit_fast
def _softmax(lines: Any, at: int, count: int, scale: Any, lowest: Any) -> Any:
    """Replace ``count`` numbers from ``at`` on by e^(scale · x − maximum), then zeros. Returns 1 / their sum.

    ``lowest``: a vector of −∞.
    """
    top, by = lowest, spread(scale)
    for j in range(0, count, LANES):
        x = first_of(load(lines, at + j) * by, count - j, lowest)
        store(lines, at + j, x)
        top = larger(x, top)
    # If all are NaN, the maximum is undefined, but the exponentials are NaN.
    most, added = spread(highest(top)), spread(like(scale, 0))
    for j in range(0, count, LANES):
        x = exponential(load(lines, at + j) - most)
        store(lines, at + j, x)
        added += x
    return like(scale, 1) / total(added)


@jit_fast
def _intervals(times: Any, row: int, start: int, span: int, relation: Any) -> None:
    """Set ``relation`` [j] to the interval between ``row`` and each row from ``start`` to it."""
    now = times[row]
    for j in range(row - start + 1):
        relation[j] = min(abs(now - times[start + j]), span)


@jit_fast
def _add_intervals(left: Any, relation: Any, count: int, table: Any, width: int, line: Any) -> None:
    """``line`` [j] += the row of ``left`` · the table's row of interval j. Each argument is an address and an offset."""
    (row, at), (rows, head), (out, to) = left, table, line
    for j in range(count):
        own, added = head + relation[j] * width, load_first(row, at, 0)
        for c in range(0, width, LANES):
            added += load_first(row, at + c, width - c) * load_first(rows, own + c, width - c)
        out[to + j] += total(added)


@jit_fast
def _collect_intervals(line: Any, relation: Any, count: int, table: Any, width: int, out: Any) -> None:
    """The row of ``out`` += Σ_j line[j] · the table's row of interval j. Each argument is an address and an offset."""
    (factors, at), (rows, head), (into, to) = line, table, out
    for c in range(0, width, LANES):
        added = load_first(into, to + c, width - c)
        for j in range(count):
            added += spread_at(factors, at + j) * load_first(rows, head + relation[j] * width + c, width - c)
        store_first(into, to + c, added, width - c)


@jit_fast
def _add_to_intervals(line: Any, relation: Any, count: int, row: Any, width: int, table: Any) -> None:
    """The table's row of each interval += line[j] · ``row``. Each argument is an address and an offset."""
    (factors, at), (source, own), (into, head) = line, row, table
    for c in range(0, width, LANES):
        x = load_first(source, own + c, width - c)
        for j in range(count):
            to = head + relation[j] * width + c
            store_first(into, to, load_first(into, to, width - c) + spread_at(factors, at + j) * x, width - c)


@jit_fast
def _dots(rows: Any, columns: Any, width: int, lines: Any, count: int, end: int) -> None:
    """Set ``lines`` (address, offset, stride) to dot products of rows (likewise) with each of ``end`` columns."""
    (table, own, stride), (line, at, size) = rows, lines
    for j in range(0, end, LANES):
        right, out = (columns, j * width, LANES, width), (line, at + j, size, LANES, count)
        _eight_rows((table, own, stride, 1), right, (line, 0, 0, False), out, LANES)


@jit_fast
def _weighted(lines: Any, rows: Any, terms: int, out: Any, count: int, width: int) -> None:
    """``out`` = ``lines`` · ``rows``, each (address, offset, stride); ``lines`` has a row and a term stride."""
    (table, beside, stride), (into, to, pitch) = rows, out
    for c in range(0, width, LANES):
        right, found = (table, beside + c, stride, terms), (into, to + c, pitch, width - c, count)
        _eight_rows(lines, right, (into, 0, 0, False), found, LANES)


@jit_fast
def _forward(call: Any, first: int, last: int) -> None:
    qkv, n, t, span = call.qkv, call.numbers, call.timed, call.timed.span
    sequences, words, bounds, heads, width = n.sequences, n.words, n.bounds, n.heads, n.width
    size, dim = (n.longest + LANES - 1) // LANES * LANES, heads * width
    room, spans = np.empty(size * (width + GROUP), qkv.q.dtype), np.empty(size, np.int64)
    columns, lines, relation = address(room), address(room[size * width :]), address(spans)
    keeping, dropping, timed = call.shares.shape[0] > 0, words.shape[0] > 0, t.times.shape[0] > 0
    low, high, lowest = np.uint32(0), np.uint32(0), spread(qkv.q.dtype.type(-np.inf))
    queries, keys, values = address(qkv.q), address(qkv.k), address(qkv.v)
    result, kept_shares = address(call.out), address(call.shares)
    moments, of_keys, of_values = address(t.times), address(t.keys), address(t.values)
    for item in range(bounds[first], bounds[last]):
        start, length, offset, place = sequences[item, 0], sequences[item, 1], sequences[item, 2], sequences[item, 3]
        whole = padded(length)
        if dropping:
            low, high = words[item, 0], words[item, 1]
        for h in range(heads):
            column, head = h * width, h * (span + 1) * width
            _columns(keys, qkv.stride_k, start, column, width, length, columns)
            for group in range(0, length, GROUP):
                rows = min(GROUP, length - group)
                end = group + rows
                own = (start + group) * qkv.stride_q + column
                _dots((queries, own, qkv.stride_q), columns, width, (lines, 0, size), rows, end)
                for i in range(group, end):
                    count, at = i + 1, (i - group) * size
                    if timed:
                        _intervals(moments, start + i, start, span, relation)
                        here = (queries, own + (i - group) * qkv.stride_q)
                        _add_intervals(here, relation, count, (of_keys, head), width, (lines, at))
                    norm = spread(_softmax(lines, at, count, n.scale, lowest))
                    mine, number = offset + (h * length + i) * whole, place + (h * length + i) * length
                    for j in range(0, count, LANES):
                        share = load(lines, at + j) * norm
                        if keeping:
                            store(kept_shares, mine + j, share)
                        if dropping:
                            share = keep(share, number + j, low, high, n.threshold, n.kept)
                        store(lines, at + j, share)
                to, beside = (start + group) * dim + column, start * qkv.stride_v + column
                _weighted((lines, 0, size, 1), (values, beside, qkv.stride_v), end, (result, to, dim), rows, width)
                if timed:
                    for i in range(group, end):
                        _intervals(moments, start + i, start, span, relation)
                        line, here = (lines, (i - group) * size), (result, to + (i - group) * dim)
                        _collect_intervals(line, relation, i + 1, (of_values, head), width, here)
    hold(room)
    hold(spans)


@jit_fast
def _backward(call: Any, first: int, last: int) -> None:
    qkv, n, t, span = call.qkv, call.numbers, call.timed, call.timed.span
    sequences, words, bounds, heads, width = n.sequences, n.words, n.bounds, n.heads, n.width
    size, dim = (n.longest + LANES - 1) // LANES * LANES, heads * width
    room, spans = np.empty(size * (width + 2 * size), qkv.q.dtype), np.empty(size, np.int64)
    columns, relation = address(room), address(spans)
    # Gradients of the scores, and the weights, of all queries of a sequence.
    slopes, weights = address(room[size * width :]), address(room[size * (width + size) :])
    queries, keys, above, result = address(qkv.q), address(qkv.k), address(call.gradient), address(call.packed)
    tables, moments = (address(t.keys), address(t.values)), address(t.times)
    into_tables = (address(call.into_keys), address(call.into_values))
    dropping, timed, known = words.shape[0] > 0, t.times.shape[0] > 0, address(call.shares)
    low, high = np.uint32(0), np.uint32(0)
    for piece in range(first, last):
        for item in range(bounds[piece], bounds[piece + 1]):
            start, length = sequences[item, 0], sequences[item, 1]
            offset, of_mask = sequences[item, 2], sequences[item, 3]
            if dropping:
                low, high = words[item, 0], words[item, 1]
            for h in range(heads):
                column, head, table = h * width, h * (span + 1) * width, (piece * heads + h) * (span + 1) * width
                _columns(address(qkv.v), qkv.stride_v, start, column, width, length, columns)
                for group in range(0, length, GROUP):
                    count = min(GROUP, length - group)
                    end, own = group + count, (start + group) * dim + column
                    _dots((above, own, dim), columns, width, (slopes, group * size, size), count, end)
                    if timed:
                        for i in range(group, end):
                            _intervals(moments, start + i, start, span, relation)
                            here = (above, (start + i) * dim + column)
                            _add_intervals(here, relation, i + 1, (tables[1], head), width, (slopes, i * size))
                    for i in range(group, end):
                        mine, number = offset + (h * length + i) * padded(length), of_mask + (h * length + i) * length
                        mask = (dropping, number, low, high, n.threshold, n.kept)
                        _score_slopes(slopes, weights, i * size, i + 1, (known, mine), mask, n.scale)
                    out, seen = (result, (start + group) * 3 * dim + column, 3 * dim), start * qkv.stride_k + column
                    _weighted((slopes, group * size, size, 1), (keys, seen, qkv.stride_k), end, out, count, width)
                    if timed:
                        for i in range(group, end):
                            _intervals(moments, start + i, start, span, relation)
                            line, at = (slopes, i * size), (result, (start + i) * 3 * dim + column)
                            _collect_intervals(line, relation, i + 1, (tables[0], head), width, at)
                            row = (queries, (start + i) * qkv.stride_q + column)
                            _add_to_intervals(line, relation, i + 1, row, width, (into_tables[0], table))
                            row = (above, (start + i) * dim + column)
                            _add_to_intervals((weights, i * size), relation, i + 1, row, width, (into_tables[1], table))
                place = (start, length, column, dim)
                _of_keys_and_values((slopes, weights, size), (queries, qkv.stride_q), above, result, place, width)
    hold(room)
    hold(spans)


@jit_fast
def _score_slopes(slopes: Any, weights: Any, at: int, count: int, shares: Any, mask: Any, scale: Any) -> None:
    """Replace a query's ``slopes`` by its scores' gradients, and its weights by its softmax times dropout's mask."""
    (known, mine), (dropping, number, low, high, threshold, kept) = shares, mask
    added, by = spread(like(scale, 0)), spread(scale)
    for j in range(0, count, LANES):
        weight = load(known, mine + j)
        if dropping:
            weight = keep(weight, number + j, low, high, threshold, kept)
        store(weights, at + j, weight)
        product = load(slopes, at + j) * weight
        store(slopes, at + j, product)
        added += product
    expected = spread(total(added))
    for j in range(0, count, LANES):
        store(slopes, at + j, (load(slopes, at + j) - load(known, mine + j) * expected) * by)


@jit_fast
def _of_keys_and_values(lines: Any, queries: Any, above: Any, result: Any, place: Any, width: int) -> None:
    """Gradients of keys and values: sums over queries from a group's first row on (earlier ones do not attend to it)."""
    (slopes, weights, size), (table, stride), (start, length, column, dim) = lines, queries, place
    for group in range(0, length, GROUP):
        count, terms, at = min(GROUP, length - group), length - group, group * size + group
        to, beside = (start + group) * 3 * dim + column, (start + group) * stride + column
        _weighted((slopes, at, 1, size), (table, beside, stride), terms, (result, to + dim, 3 * dim), count, width)
        row = (above, (start + group) * dim + column, dim)
        _weighted((weights, at, 1, size), row, terms, (result, to + 2 * dim, 3 * dim), count, width)
