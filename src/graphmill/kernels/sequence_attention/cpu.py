"""Causal attention, plain and with relative times, for the CPU, compiled: a sequence's rows stay in the first caches.

Each query meets the keys up to its own row and no others: neither the half that the causal mask would throw away nor a
padded, masked or dropped matrix of weights is ever made. Keys and values stand transposed where a query meets them all, so
that every loop runs along memory, and eight queries are taken at a time. With times, an interval's row of R is
looked up where it is needed. Kept for the way back are the softmax's shares; dropout's words are made again.

Threads take whole sequences, in pieces of about equal work whose number is fixed: the sums over pieces, and with them every
result, do not depend on how many threads there are. fp32 or float64. The formulas are those of ``sequence_attention`` and
``sequence_attention.times``.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from torch import Tensor

from graphmill.kernels.runtime.compiled_math import FAST
from graphmill.kernels.runtime.jit import jit
from graphmill.kernels.runtime.small_products import GROUP, block
from graphmill.kernels.runtime.team import over_ranges
from graphmill.kernels.runtime.vectors import (
    LANES,
    address,
    exponential,
    first_of,
    highest,
    hold,
    keep,
    larger,
    like,
    load,
    load_first,
    padded,
    spread,
    spread_at,
    store,
    store_first,
    total,
)
from graphmill.kernels.runtime.words import Key, threshold_and_scale

if TYPE_CHECKING:
    from graphmill.kernels.sequence_attention import Bucket

_jit = jit(nogil=True, fastmath=FAST, error_model="numpy")
_U = np.uint64
_PIECES = 16


class Plan(NamedTuple):
    """Where the sequences of a batch are.

    ``sequences`` int64 [S, 4]: first row, length, place of its first share, place in its bucket's mask. ``bucket`` int64
    [S]. ``bounds`` int64 [pieces + 1]: sequences of each piece. ``shares``, ``longest``: numbers.
    """

    sequences: np.ndarray
    bucket: np.ndarray
    bounds: np.ndarray
    shares: int
    longest: int


class Times(NamedTuple):
    """int64 [R] times, the longest interval, and the tables [span + 1, d] of keys and of values."""

    times: Tensor
    span: int
    keys: Tensor
    values: Tensor


@lru_cache(maxsize=16)
def plan(buckets: tuple[Bucket, ...], heads: int) -> Plan:
    """The plan of a batch; the same buckets come once a layer."""
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
    query: Tensor,
    key: Tensor,
    value: Tensor,
    where: Plan,
    heads: int,
    p: float,
    keys: Sequence[Key],
    times: Times | None,
    keep: bool,
) -> tuple[Tensor, Tensor]:
    """[R, d] each, rows contiguous in memory → output [R, d] and, with ``keep``, the shares.

    ``keys``: of each bucket's mask over [count · heads, length, length].
    """
    rows, dim = query.shape
    out = query.new_empty(rows, dim)
    shares = query.new_empty(where.shares if keep else 0)
    arrays = (_flat(query), _flat(key), _flat(value), query.stride(0), key.stride(0), value.stride(0))
    more = (out.view(-1).numpy(), shares.numpy(), *_numbers(query, where, heads, p, keys), *_times(times, query, heads))
    over_ranges(_forward, (*arrays, *more), len(where.bounds) - 1, where.shares * dim)
    return out, shares


def backward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    gradient: Tensor,
    shares: Tensor,
    where: Plan,
    heads: int,
    p: float,
    keys: Sequence[Key],
    times: Times | None,
) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
    """Gradients of query, key and value side by side, [R, 3 · d], their sums over rows, and those of the two tables."""
    rows, dim = query.shape
    packed = query.new_empty(rows, 3 * dim)
    gradient = gradient.contiguous()
    known = _times(times, query, heads)
    shape = (0, 0, 0) if times is None else (heads, len(times.keys), dim // heads)
    tables = query.new_zeros(2, 0 if times is None else _PIECES, *shape)
    arrays = (_flat(query), _flat(key), _flat(value), query.stride(0), key.stride(0), value.stride(0))
    columns = query.new_zeros(_PIECES, padded(3 * dim))
    sums = (tables[0].view(-1).numpy(), tables[1].view(-1).numpy(), columns.numpy())
    more = (gradient.view(-1).numpy(), shares.numpy(), packed.view(-1).numpy(), *sums)
    rest = (*_numbers(query, where, heads, p, keys), *known)
    over_ranges(_backward, (*arrays, *more, *rest), len(where.bounds) - 1, where.shares * dim)
    into = [None, None] if times is None else [t.sum(0).transpose(0, 1).reshape(-1, dim) for t in tables]
    return packed, columns.sum(0)[: 3 * dim], into[0], into[1]


def _numbers(like: Tensor, where: Plan, heads: int, p: float, keys: Sequence[Key]) -> tuple[Any, ...]:
    width = like.shape[1] // heads
    kind = like.detach()[:0].numpy().dtype.type
    threshold, scale = threshold_and_scale(p)
    words = np.array(keys, dtype=np.uint32).reshape(-1, 2)[where.bucket] if p > 0.0 else np.empty((0, 2), np.uint32)
    plain = (where.sequences, words, where.bounds, where.longest, heads, width)
    return *plain, kind(width**-0.5), np.uint32(threshold), kind(scale)


def _times(times: Times | None, like: Tensor, heads: int) -> tuple[Any, ...]:
    if times is None:
        empty = like.detach().new_empty(0).numpy()
        return np.empty(0, np.int64), 0, empty, empty
    tables = (t.detach().view(len(t), heads, -1).transpose(0, 1).reshape(-1).numpy() for t in times[2:])
    return times.times.contiguous().numpy(), times.span, *tables


def _flat(x: Tensor) -> np.ndarray:
    """The memory from the first element to the last."""
    if not x.numel():
        return x.detach().reshape(-1).numpy()
    return x.detach().as_strided(((len(x) - 1) * x.stride(0) + x.shape[1],), (1,)).numpy()


@_jit
def _columns(source: Any, stride: int, start: int, column: int, width: int, length: int, out: Any) -> None:
    """``out``: the transpose of one head of some rows in strips of 16 of its columns, zero past the last."""
    for j in range(length):
        at, to = _U((start + j) * stride + column), _U(j // LANES * width * LANES + j % LANES)
        for c in range(_U(width)):
            out[to + c * _U(LANES)] = source[at + c]
    for j in range(length, (length + LANES - 1) // LANES * LANES):
        to = _U(j // LANES * width * LANES + j % LANES)
        for c in range(_U(width)):
            out[to + c * _U(LANES)] = 0


@_jit
def _softmax(lines: Any, at: int, count: int, scale: Any, lowest: Any) -> Any:
    """Numbers from ``at`` on become e^(scale · x − the highest), zero past the ``count``-th. Returns 1 / their sum.

    ``lowest``: −∞, sixteen times.
    """
    top, by = lowest, spread(scale)
    for j in range(0, count, LANES):
        x = first_of(load(lines, at + j) * by, count - j, lowest)
        store(lines, at + j, x)
        top = larger(x, top)
    # Where all are NaN the highest may be anything; their exponentials are NaN.
    most, added = spread(highest(top)), spread(like(scale, 0))
    for j in range(0, count, LANES):
        x = exponential(load(lines, at + j) - most)
        store(lines, at + j, x)
        added += x
    return like(scale, 1) / total(added)


@_jit
def _intervals(times: Any, row: int, start: int, span: int, relation: Any) -> None:
    """``relation`` [j]: the interval between a row and each row from ``start`` up to it."""
    now = times[row]
    for j in range(row - start + 1):
        relation[j] = min(abs(now - times[start + j]), span)


@_jit
def _add_intervals(
    left: Any, at: int, relation: Any, count: int, table: Any, head: int, width: int, line: Any, to: int
) -> None:
    """``line`` [to + j] += the row of ``left`` at ``at`` · the table's row of interval j."""
    for j in range(count):
        own, added = head + relation[j] * width, load_first(left, at, 0)
        for c in range(0, width, LANES):
            added += load_first(left, at + c, width - c) * load_first(table, own + c, width - c)
        line[to + j] += total(added)


@_jit
def _collect_intervals(
    line: Any, at: int, relation: Any, count: int, table: Any, head: int, width: int, out: Any, to: int
) -> None:
    """The row of ``out`` at ``to`` += Σ_j line[at + j] · the table's row of interval j."""
    for c in range(0, width, LANES):
        added = load_first(out, to + c, width - c)
        for j in range(count):
            added += spread_at(line, at + j) * load_first(table, head + relation[j] * width + c, width - c)
        store_first(out, to + c, added, width - c)


@_jit
def _add_to_intervals(
    line: Any, at: int, relation: Any, count: int, row: Any, own: int, head: int, width: int, into: Any
) -> None:
    """The rows of ``into`` of each interval += line[at + j] · ``row`` [own ...]."""
    for c in range(0, width, LANES):
        x = load_first(row, own + c, width - c)
        for j in range(count):
            to = head + relation[j] * width + c
            store_first(into, to, load_first(into, to, width - c) + spread_at(line, at + j) * x, width - c)


@_jit
def _forward(
    q: Any, k: Any, v: Any, stride_q: int, stride_k: int, stride_v: int, out: Any, shares: Any, sequences: Any,
    words: Any, bounds: Any, longest: int, heads: int, width: int, scale: Any, threshold: Any, kept: Any, times: Any,
    span: int, table_k: Any, table_v: Any, first: int, last: int,
) -> None:  # fmt: skip
    size, dim = (longest + LANES - 1) // LANES * LANES, heads * width
    room, spans = np.empty(size * (width + GROUP), q.dtype), np.empty(size, np.int64)
    columns, lines, relation = address(room), address(room[size * width :]), address(spans)
    keeping, dropping, timed = shares.shape[0] > 0, words.shape[0] > 0, times.shape[0] > 0
    low, high, lowest = np.uint32(0), np.uint32(0), spread(q.dtype.type(-np.inf))
    queries, keys, values, result, kept_shares = address(q), address(k), address(v), address(out), address(shares)
    moments, of_keys, of_values = address(times), address(table_k), address(table_v)
    for item in range(bounds[first], bounds[last]):
        start, length, offset, place = sequences[item, 0], sequences[item, 1], sequences[item, 2], sequences[item, 3]
        whole = padded(length)
        if dropping:
            low, high = words[item, 0], words[item, 1]
        for h in range(heads):
            column, head = h * width, h * (span + 1) * width
            _columns(keys, stride_k, start, column, width, length, columns)
            for group in range(0, length, GROUP):
                rows = min(GROUP, length - group)
                end = group + rows
                own = (start + group) * stride_q + column
                for j in range(0, end, LANES):
                    block(
                        queries, own, stride_q, 1, columns, j * width, LANES, width, LANES, False, lines, j, size, rows
                    )
                for i in range(group, end):
                    count, at = i + 1, (i - group) * size
                    if timed:
                        _intervals(moments, start + i, start, span, relation)
                        here = own + (i - group) * stride_q
                        _add_intervals(queries, here, relation, count, of_keys, head, width, lines, at)
                    norm = spread(_softmax(lines, at, count, scale, lowest))
                    mine, number = offset + (h * length + i) * whole, place + (h * length + i) * length
                    for j in range(0, count, LANES):
                        share = load(lines, at + j) * norm
                        if keeping:
                            store(kept_shares, mine + j, share)
                        if dropping:
                            share = keep(share, number + j, low, high, threshold, kept)
                        store(lines, at + j, share)
                to, beside = (start + group) * dim + column, start * stride_v + column
                for c in range(0, width, LANES):
                    block(
                        lines,
                        0,
                        size,
                        1,
                        values,
                        beside + c,
                        stride_v,
                        end,
                        width - c,
                        False,
                        result,
                        to + c,
                        dim,
                        rows,
                    )
                if timed:
                    for i in range(group, end):
                        _intervals(moments, start + i, start, span, relation)
                        here = to + (i - group) * dim
                        _collect_intervals(
                            lines, (i - group) * size, relation, i + 1, of_values, head, width, result, here
                        )
    hold(room)
    hold(spans)


@_jit
def _backward(
    q: Any, k: Any, v: Any, stride_q: int, stride_k: int, stride_v: int, gradient: Any, shares: Any, packed: Any,
    into_table_k: Any, into_table_v: Any, into_columns: Any, sequences: Any, words: Any, bounds: Any, longest: int,
    heads: int, width: int, scale: Any, threshold: Any, kept: Any, times: Any, span: int, table_k: Any, table_v: Any,
    first: int, last: int,
) -> None:  # fmt: skip
    size, dim = (longest + LANES - 1) // LANES * LANES, heads * width
    room, spans = np.empty(size * (width + 2 * size), q.dtype), np.empty(size, np.int64)
    columns, relation = address(room), address(spans)
    # Gradients of the scores, and what the weights were, of all queries of a sequence.
    slopes, weights = address(room[size * width :]), address(room[size * (width + size) :])
    queries, keys, values, above, known = address(q), address(k), address(v), address(gradient), address(shares)
    result, moments, of_keys, of_values = address(packed), address(times), address(table_k), address(table_v)
    into_keys, into_values, columns_sum = address(into_table_k), address(into_table_v), address(into_columns)
    dropping, timed, by = words.shape[0] > 0, times.shape[0] > 0, spread(scale)
    low, high = np.uint32(0), np.uint32(0)
    for piece in range(first, last):
        for item in range(bounds[piece], bounds[piece + 1]):
            start, length, offset = sequences[item, 0], sequences[item, 1], sequences[item, 2]
            place = sequences[item, 3]
            whole = padded(length)
            if dropping:
                low, high = words[item, 0], words[item, 1]
            for h in range(heads):
                column, head = h * width, h * (span + 1) * width
                table = (piece * heads + h) * (span + 1) * width
                _columns(values, stride_v, start, column, width, length, columns)
                for group in range(0, length, GROUP):
                    rows = min(GROUP, length - group)
                    end, own = group + rows, (start + group) * dim + column
                    for j in range(0, end, LANES):
                        to = group * size + j
                        block(
                            above, own, dim, 1, columns, j * width, LANES, width, LANES, False, slopes, to, size, rows
                        )
                    for i in range(group, end):
                        count, at = i + 1, i * size
                        if timed:
                            _intervals(moments, start + i, start, span, relation)
                            here = (start + i) * dim + column
                            _add_intervals(above, here, relation, count, of_values, head, width, slopes, at)
                        mine, number = offset + (h * length + i) * whole, place + (h * length + i) * length
                        added = spread(like(scale, 0))
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
                            slope = (load(slopes, at + j) - load(known, mine + j) * expected) * by
                            store(slopes, at + j, slope)
                    to, at = (start + group) * 3 * dim + column, group * size
                    for c in range(0, width, LANES):
                        beside = start * stride_k + column + c
                        block(
                            slopes,
                            at,
                            size,
                            1,
                            keys,
                            beside,
                            stride_k,
                            end,
                            width - c,
                            False,
                            result,
                            to + c,
                            3 * dim,
                            rows,
                        )
                    if timed:
                        for i in range(group, end):
                            count, at, here = i + 1, i * size, (start + i) * 3 * dim + column
                            _intervals(moments, start + i, start, span, relation)
                            _collect_intervals(slopes, at, relation, count, of_keys, head, width, result, here)
                            here = (start + i) * stride_q + column
                            _add_to_intervals(slopes, at, relation, count, queries, here, table, width, into_keys)
                            here = (start + i) * dim + column
                            _add_to_intervals(weights, at, relation, count, above, here, table, width, into_values)
                # Of keys and values: sums over the queries from the group's first row on, those before do not see it.
                for group in range(0, length, GROUP):
                    rows, terms, at = min(GROUP, length - group), length - group, group * size + group
                    to = (start + group) * 3 * dim + column
                    for c in range(0, width, LANES):
                        n, beside = width - c, (start + group) * stride_q + column + c
                        own = to + dim + c
                        block(
                            slopes, at, 1, size, queries, beside, stride_q, terms, n, False, result, own, 3 * dim, rows
                        )
                        beside, sink = (start + group) * dim + column + c, to + 2 * dim + c
                        block(weights, at, 1, size, above, beside, dim, terms, n, False, result, sink, 3 * dim, rows)
            for c in range(0, 3 * dim, LANES):
                own, at = piece * padded(3 * dim) + c, start * 3 * dim + c
                added = load(columns_sum, own)
                for j in range(length):
                    added += load_first(result, at + j * 3 * dim, 3 * dim - c)
                store(columns_sum, own, added)
    hold(room)
    hold(spans)
