"""Causal attention, plain and with relative times, for the CPU, compiled: a sequence's rows stay in the first caches.

Each query meets the keys up to its own row and no others: neither the half that the causal mask would throw away nor a
padded, masked or dropped matrix of weights is ever made. Keys and values stand transposed where a query meets them all, so
that every loop runs along memory, and four rows of either side are read at a time. With times, an interval's row of R is
looked up where it is needed. Kept for the way back are the softmax's shares; dropout's words are made again.

Threads take whole sequences, in pieces of about equal work whose number is fixed: the sums over pieces, and with them every
result, do not depend on how many threads there are. fp32 or float64. The formulas are those of ``sequence_attention`` and
``time_attention``. All of it is in one file because numba keeps compiled code by file, and would not notice a change
elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numba
import numpy as np
from torch import Tensor

from graphmill.kernels.compiled_math import FAST, exp
from graphmill.kernels.dropout import Key, threshold_and_scale
from graphmill.kernels.dropout_numba import word
from graphmill.kernels.team import in_ranges, over_ranges

if TYPE_CHECKING:
    from graphmill.kernels.sequence_attention import Bucket

_jit = numba.njit(nogil=True, fastmath=FAST, error_model="numpy", cache=True)
_U = np.uint64
_PIECES = 16
_LANES = 16


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
        square = heads * bucket.length * (-(-bucket.length // _LANES) * _LANES)
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
    over_ranges(_forward_ranges, (*arrays, *more), len(where.bounds) - 1, where.shares * dim)
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
) -> tuple[Tensor, Tensor, Tensor, Tensor | None, Tensor | None]:
    """Gradients of query, key and value, which lie side by side in one memory [R, 3 · d], and of the two tables."""
    rows, dim = query.shape
    packed = query.new_empty(rows, 3 * dim)
    gradient = gradient.contiguous()
    known = _times(times, query, heads)
    tables = query.new_zeros(2, 0 if times is None else _PIECES, *known[2].shape)
    arrays = (_flat(query), _flat(key), _flat(value), query.stride(0), key.stride(0), value.stride(0))
    more = (gradient.view(-1).numpy(), shares.numpy(), packed.view(-1).numpy(), tables[0].numpy(), tables[1].numpy())
    rest = (*_numbers(query, where, heads, p, keys), *known)
    over_ranges(_backward_ranges, (*arrays, *more, *rest), len(where.bounds) - 1, where.shares * dim)
    into = [None, None] if times is None else [t.sum(0).transpose(0, 1).reshape(-1, dim) for t in tables]
    return packed[:, :dim], packed[:, dim : 2 * dim], packed[:, 2 * dim :], into[0], into[1]


def _numbers(like: Tensor, where: Plan, heads: int, p: float, keys: Sequence[Key]) -> tuple[Any, ...]:
    width = like.shape[1] // heads
    kind = like.detach()[:0].numpy().dtype.type
    threshold, scale = threshold_and_scale(p)
    words = np.array(keys, dtype=np.uint32).reshape(-1, 2)[where.bucket] if p > 0.0 else np.empty((0, 2), np.uint32)
    plain = (where.sequences, words, where.bounds, where.longest, heads, width)
    return *plain, kind(width**-0.5), np.uint32(threshold), kind(scale)


def _times(times: Times | None, like: Tensor, heads: int) -> tuple[Any, ...]:
    if times is None:
        empty = like.detach().new_empty(0, 0, 0).numpy()
        return np.empty(0, np.int64), 0, empty, empty
    tables = (t.detach().view(len(t), heads, -1).transpose(0, 1).contiguous().numpy() for t in times[2:])
    return times.times.numpy(), times.span, *tables


def _flat(x: Tensor) -> np.ndarray:
    """The memory from the first element to the last."""
    if not x.numel():
        return x.detach().reshape(-1).numpy()
    return x.detach().as_strided(((len(x) - 1) * x.stride(0) + x.shape[1],), (1,)).numpy()


@_jit
def _rows(source: Any, stride: int, start: int, column: int, width: int, length: int, out: Any) -> None:
    """``out`` [lines, even]: one head of some rows, then zeros (the columns from ``width`` on are zero already)."""
    for j in range(length):
        at = _U((start + j) * stride + column)
        for c in range(_U(width)):
            out[j, c] = source[at + c]
    for j in range(length, (length + _LANES - 1) // _LANES * _LANES):
        for c in range(width):
            out[j, c] = 0


@_jit
def _strips(source: Any, stride: int, start: int, column: int, width: int, length: int, size: int, out: Any) -> None:
    """``out``: one head of some rows in strips of 16 columns, then zeros up to the next multiple of 16 rows."""
    lanes, padded = _U(_LANES), (length + _LANES - 1) // _LANES * _LANES
    for low in range(0, width, _LANES):
        count = min(width - low, _LANES)
        for j in range(length):
            at, to = _U((start + j) * stride + column + low), _U((low // _LANES * size + j) * _LANES)
            if count == _LANES:
                for c in range(lanes):
                    out[to + c] = source[at + c]
            else:
                for c in range(_U(count)):
                    out[to + c] = source[at + c]
        strip = low // _LANES * size
        for place in range(_U((strip + length) * _LANES), _U((strip + padded) * _LANES)):
            out[place] = 0


@_jit
def _columns(source: Any, stride: int, start: int, column: int, width: int, length: int, even: int, out: Any) -> None:
    """``out``: the transpose of some rows in strips of 16 of its columns."""
    for j in range(length):
        at, to = _U((start + j) * stride + column), _U(j // _LANES * even * _LANES + j % _LANES)
        for c in range(_U(width)):
            out[to + c * _U(_LANES)] = source[at + c]
    for j in range(length, (length + _LANES - 1) // _LANES * _LANES):
        to = _U(j // _LANES * even * _LANES + j % _LANES)
        for c in range(_U(width)):
            out[to + c * _U(_LANES)] = 0


@_jit
def _meet(left: Any, first: int, columns: Any, width: int, even: int, blocks: int, lines: Any) -> None:
    """Four rows of ``left`` from ``first`` on, times the columns: ``lines`` holds 16 results of each row, block by block.

    Everything is in pieces of constant length: only so does LLVM see that four lines are apart, and vectorise.
    """
    one, two, three = _U(_LANES), _U(2 * _LANES), _U(3 * _LANES)
    for b in range(blocks):
        to = _U(b * 4 * _LANES)
        for j in range(_U(4 * _LANES)):
            lines[to + j] = 0
        for c in range(0, width, 4):
            a0, a1, a2, a3 = left[first, c], left[first, c + 1], left[first, c + 2], left[first, c + 3]
            b0, b1, b2, b3 = left[first + 1, c], left[first + 1, c + 1], left[first + 1, c + 2], left[first + 1, c + 3]
            c0, c1, c2, c3 = left[first + 2, c], left[first + 2, c + 1], left[first + 2, c + 2], left[first + 2, c + 3]
            d0, d1, d2, d3 = left[first + 3, c], left[first + 3, c + 1], left[first + 3, c + 2], left[first + 3, c + 3]
            own = _U((b * even + c) * _LANES)
            for j in range(_U(_LANES)):
                x, at = own + j, to + j
                x0, x1, x2, x3 = columns[x], columns[x + one], columns[x + two], columns[x + three]
                lines[at] += (a0 * x0 + a1 * x1) + (a2 * x2 + a3 * x3)
                lines[at + one] += (b0 * x0 + b1 * x1) + (b2 * x2 + b3 * x3)
                lines[at + two] += (c0 * x0 + c1 * x1) + (c2 * x2 + c3 * x3)
                lines[at + three] += (d0 * x0 + d1 * x1) + (d2 * x2 + d3 * x3)


@_jit
def _collect(lines: Any, strips: Any, count: int, size: int, even: int, totals: Any) -> None:
    """Four rows of totals: lines · rows. ``lines`` as :func:`_meet` leaves them, zero up to the next multiple of four."""
    one, two, three = _U(_LANES), _U(2 * _LANES), _U(3 * _LANES)
    for b in range(even // _LANES):
        to = _U(b * 4 * _LANES)
        for c in range(_U(4 * _LANES)):
            totals[to + c] = 0
        for j in range(0, count, 4):
            at = _U(j // _LANES * 4 * _LANES + j % _LANES)
            a0, a1, a2, a3 = lines[at], lines[at + _U(1)], lines[at + _U(2)], lines[at + _U(3)]
            at += one
            b0, b1, b2, b3 = lines[at], lines[at + _U(1)], lines[at + _U(2)], lines[at + _U(3)]
            at += one
            c0, c1, c2, c3 = lines[at], lines[at + _U(1)], lines[at + _U(2)], lines[at + _U(3)]
            at += one
            d0, d1, d2, d3 = lines[at], lines[at + _U(1)], lines[at + _U(2)], lines[at + _U(3)]
            own = _U((b * size + j) * _LANES)
            for c in range(_U(_LANES)):
                x, sink = own + c, to + c
                x0, x1, x2, x3 = strips[x], strips[x + one], strips[x + two], strips[x + three]
                totals[sink] += (a0 * x0 + a1 * x1) + (a2 * x2 + a3 * x3)
                totals[sink + one] += (b0 * x0 + b1 * x1) + (b2 * x2 + b3 * x3)
                totals[sink + two] += (c0 * x0 + c1 * x1) + (c2 * x2 + c3 * x3)
                totals[sink + three] += (d0 * x0 + d1 * x1) + (d2 * x2 + d3 * x3)


@_jit
def _line(lines: Any, row: int, blocks: int, line: Any) -> None:
    """``line`` [16 · blocks]: one of the four rows, in one piece."""
    lanes = _U(_LANES)
    for b in range(blocks):
        at, to = _U((b * 4 + row) * _LANES), _U(b * _LANES)
        for j in range(lanes):
            line[to + j] = lines[at + j]


@_jit
def _back(line: Any, row: int, blocks: int, most: int, lines: Any) -> None:
    """The inverse of :func:`_line`, and zeros from there to block ``most``."""
    lanes = _U(_LANES)
    for b in range(blocks):
        at, to = _U((b * 4 + row) * _LANES), _U(b * _LANES)
        for j in range(lanes):
            lines[at + j] = line[to + j]
    for b in range(blocks, most):
        at = _U((b * 4 + row) * _LANES)
        for j in range(lanes):
            lines[at + j] = 0


@numba.njit(nogil=True, fastmath={"nnan", "nsz", "reassoc"}, error_model="numpy", cache=True)
def _highest(line: Any, count: int) -> Any:
    # With NaN in the scores this may be any of them; the sum of exponentials is NaN then.
    top = line[0]
    for j in range(count):
        top = line[j] if line[j] > top else top
    return top


@_jit
def _softmax(line: Any, count: int, upto: int) -> None:
    """Softmax of the first ``count`` numbers, zero up to ``upto``."""
    top = _highest(line, count)
    lowest = line.dtype.type(-np.inf)
    for j in range(count, upto):
        line[j] = lowest
    total = top - top
    for j in range(upto):
        e = exp(line[j] - top)
        line[j] = e
        total += e
    norm = line.dtype.type(1) / total
    for j in range(upto):
        line[j] *= norm


@_jit
def _drop(line: Any, upto: int, place: int, low: Any, high: Any, threshold: Any, kept: Any) -> None:
    """Each number zeroed or times ``kept``."""
    zero = kept - kept
    for j in range(upto):
        line[j] *= kept if word(place + j, low, high) >= threshold else zero


@_jit
def _write(totals: Any, row: int, width: int, out: Any, to: int) -> None:
    """One of the four rows of totals to its place."""
    whole = width // _LANES
    for b in range(whole):
        at, own = _U((b * 4 + row) * _LANES), _U(to + b * _LANES)
        for c in range(_U(_LANES)):
            out[own + c] = totals[at + c]
    for c in range(whole * _LANES, width):
        out[_U(to + c)] = totals[_U((whole * 4 + row) * _LANES + c - whole * _LANES)]


@_jit
def _add_intervals(
    left: Any,
    i: int,
    times: Any,
    start: int,
    span: int,
    table: Any,
    h: int,
    width: int,
    relation: Any,
    row: int,
    line: Any,
) -> None:
    """``line`` [j] += left [i] · table [interval of rows i and j] for every j up to i. ``relation`` [row]: the intervals."""
    now = times[start + i]
    for j in range(i + 1):
        r = min(abs(now - times[start + j]), span)
        relation[row, j] = r
        s = left[i, 0] - left[i, 0]
        for c in range(width):
            s += left[i, c] * table[h, r, c]
        line[j] += s


@_jit
def _forward(
    q: Any, k: Any, v: Any, stride_q: int, stride_k: int, stride_v: int, out: Any, shares: Any, sequences: Any,
    words: Any, bounds: Any, longest: int, heads: int, width: int, scale: Any, threshold: Any, kept: Any, times: Any,
    span: int, table_k: Any, table_v: Any, first: int, last: int,
) -> None:  # fmt: skip
    size, even = (longest + _LANES - 1) // _LANES * _LANES, (width + _LANES - 1) // _LANES * _LANES
    columns, values = np.zeros(even * size, q.dtype), np.zeros(even * size, q.dtype)
    queries, line = np.zeros((size, even), q.dtype), np.empty(size, q.dtype)
    lines, totals = np.empty(4 * size, q.dtype), np.empty(4 * even, q.dtype)
    relation = np.empty((4, size), np.int64)
    keeping, dropping, timed = shares.shape[0] > 0, words.shape[0] > 0, times.shape[0] > 0
    for item in range(bounds[first], bounds[last]):
        start, length, offset, place = sequences[item, 0], sequences[item, 1], sequences[item, 2], sequences[item, 3]
        padded = (length + _LANES - 1) // _LANES * _LANES
        low, high = np.uint32(0), np.uint32(0)
        if dropping:
            low, high = words[item, 0], words[item, 1]
        for h in range(heads):
            column = h * width
            _columns(k, stride_k, start, column, width, length, even, columns)
            _strips(v, stride_v, start, column, width, length, size, values)
            _rows(q, stride_q, start, column, width, length, queries)
            for j in range(length):
                for c in range(width):
                    queries[j, c] *= scale
            for group in range(0, length, 4):
                end = min(group + 4, length)
                most = (end + _LANES - 1) // _LANES
                _meet(queries, group, columns, width, even, most, lines)
                for i in range(group, end):
                    count, row = i + 1, i - group
                    blocks = (count + _LANES - 1) // _LANES
                    upto = blocks * _LANES
                    _line(lines, row, blocks, line)
                    if timed:
                        _add_intervals(queries, i, times, start, span, table_k, h, width, relation, row, line)
                    _softmax(line, count, upto)
                    if keeping:
                        to = _U(offset + (h * length + i) * padded)
                        for j in range(_U(upto)):
                            shares[to + j] = line[j]
                    if dropping:
                        _drop(line, upto, place + (h * length + i) * length, low, high, threshold, kept)
                    _back(line, row, blocks, most, lines)
                _collect(lines, values, end, size, even, totals)
                for i in range(group, end):
                    row, to = i - group, (start + i) * heads * width + column
                    _write(totals, row, width, out, to)
                    if timed:
                        for j in range(i + 1):
                            r, weight = relation[row, j], lines[_U((j // _LANES * 4 + row) * _LANES + j % _LANES)]
                            for c in range(width):
                                out[_U(to) + _U(c)] += weight * table_v[h, r, c]


@_jit
def _backward(
    q: Any, k: Any, v: Any, stride_q: int, stride_k: int, stride_v: int, gradient: Any, shares: Any, packed: Any,
    into_table_k: Any, into_table_v: Any, sequences: Any, words: Any, bounds: Any, longest: int, heads: int, width: int,
    scale: Any, threshold: Any, kept: Any, times: Any, span: int, table_k: Any, table_v: Any, first: int, last: int,
) -> None:  # fmt: skip
    zero, lanes, dim = scale - scale, _U(_LANES), heads * width
    size, even = (longest + _LANES - 1) // _LANES * _LANES, (width + _LANES - 1) // _LANES * _LANES
    columns, keys = np.zeros(even * size, q.dtype), np.zeros(even * size, q.dtype)
    queries, above = np.zeros((size, even), q.dtype), np.zeros((size, even), q.dtype)
    into_k, into_v = np.empty((size, width), q.dtype), np.empty((size, width), q.dtype)
    # Of four queries, block by block: gradients of the scores, and what the weights were.
    lines, weights, totals = np.empty(4 * size, q.dtype), np.empty(4 * size, q.dtype), np.empty(4 * even, q.dtype)
    line, weight, share = np.empty(size, q.dtype), np.empty(size, q.dtype), np.empty(size, q.dtype)
    relation = np.empty((4, size), np.int64)
    dropping, timed = words.shape[0] > 0, times.shape[0] > 0
    for piece in range(first, last):
        for item in range(bounds[piece], bounds[piece + 1]):
            start, length, offset = sequences[item, 0], sequences[item, 1], sequences[item, 2]
            place = sequences[item, 3]
            padded = (length + _LANES - 1) // _LANES * _LANES
            low, high = np.uint32(0), np.uint32(0)
            if dropping:
                low, high = words[item, 0], words[item, 1]
            for h in range(heads):
                column = h * width
                _columns(v, stride_v, start, column, width, length, even, columns)
                _strips(k, stride_k, start, column, width, length, size, keys)
                _rows(q, stride_q, start, column, width, length, queries)
                _rows(gradient, dim, start, column, width, length, above)
                for j in range(length):
                    for c in range(width):
                        into_k[j, c] = zero
                        into_v[j, c] = zero
                for group in range(0, length, 4):
                    end = min(group + 4, length)
                    most = (end + _LANES - 1) // _LANES
                    _meet(above, group, columns, width, even, most, lines)
                    for i in range(group, group + 4):
                        row, count = i - group, i + 1
                        if i >= length:
                            # Rows that are not there meet rows of zeros; they need be finite only.
                            _back(line, row, 0, most, lines)
                            _back(weight, row, 0, most, weights)
                            continue
                        blocks = (count + _LANES - 1) // _LANES
                        upto = blocks * _LANES
                        _line(lines, row, blocks, line)
                        if timed:
                            _add_intervals(above, i, times, start, span, table_v, h, width, relation, row, line)
                        own = _U(offset + (h * length + i) * padded)
                        for j in range(_U(upto)):
                            share[j] = shares[own + j]
                            weight[j] = share[j]
                        if dropping:
                            _drop(weight, upto, place + (h * length + i) * length, low, high, threshold, kept)
                        expected = zero
                        for j in range(upto):
                            expected += line[j] * weight[j]
                        for j in range(upto):
                            line[j] = (line[j] * weight[j] - share[j] * expected) * scale
                        _back(line, row, blocks, most, lines)
                        _back(weight, row, blocks, most, weights)
                    _collect(lines, keys, end, size, even, totals)
                    for i in range(group, end):
                        row, to = i - group, (start + i) * 3 * dim + column
                        _write(totals, row, width, packed, to)
                        if timed:
                            for j in range(i + 1):
                                at = _U((j // _LANES * 4 + row) * _LANES + j % _LANES)
                                r, slope, own_weight = relation[row, j], lines[at], weights[at]
                                for c in range(width):
                                    packed[_U(to) + _U(c)] += slope * table_k[h, r, c]
                                for c in range(width):
                                    into_table_k[piece, h, r, c] += slope * queries[i, c]
                                for c in range(width):
                                    into_table_v[piece, h, r, c] += own_weight * above[i, c]
                    for j in range(end):
                        at = _U(j // _LANES * 4 * _LANES + j % _LANES)
                        a0, b0 = lines[at], weights[at]
                        at += lanes
                        a1, b1 = lines[at], weights[at]
                        at += lanes
                        a2, b2 = lines[at], weights[at]
                        at += lanes
                        a3, b3 = lines[at], weights[at]
                        for c in range(width):
                            into_k[j, c] += (a0 * queries[group, c] + a1 * queries[group + 1, c]) + (
                                a2 * queries[group + 2, c] + a3 * queries[group + 3, c]
                            )
                        for c in range(width):
                            into_v[j, c] += (b0 * above[group, c] + b1 * above[group + 1, c]) + (
                                b2 * above[group + 2, c] + b3 * above[group + 3, c]
                            )
                for j in range(length):
                    to = _U((start + j) * 3 * dim + dim + column)
                    for c in range(_U(width)):
                        packed[to + c] = into_k[j, c]
                    for c in range(_U(width)):
                        packed[to + _U(dim) + c] = into_v[j, c]


@_jit
def _forward_ranges(arguments: Any, first: int, last: int, team: Any) -> None:
    in_ranges(_forward, arguments, first, last, team)


@_jit
def _backward_ranges(arguments: Any, first: int, last: int, team: Any) -> None:
    in_ranges(_backward, arguments, first, last, team)
