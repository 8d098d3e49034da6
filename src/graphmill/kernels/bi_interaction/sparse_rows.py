"""A sparse matrix times dense rows, compiled. Each thread takes whole rows with about equally many edges."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphmill.kernels.runtime.compiled_math import prefetch
from graphmill.kernels.runtime.jit import jit
from graphmill.kernels.runtime.team import over_ranges
from graphmill.kernels.runtime.vectors import LANES, address, like, load, load_first, spread, store, store_first

_jit = jit(nogil=True, fastmath={"reassoc", "contract", "nsz", "arcp"}, error_model="numpy")
_PIECES = 16
"""Pieces per thread: small pieces balance the load, because rows differ in length."""


def add_product_(indptr: Tensor, column: Tensor, value: Tensor, x: Tensor, onto: Tensor) -> None:
    """``onto`` [R, d] += Σ_e value_e · x[column_e] over each row's edges, in their order; ``x`` [C, d]. All contiguous."""
    arrays = tuple(t.detach().numpy() for t in (indptr, column, value, x, onto))
    bounds = even_pieces(arrays[0], 0, len(arrays[0]) - 1)
    over_ranges(_multiply, (*arrays, bounds), len(bounds) - 1, column.numel() * x.shape[1])


def even_pieces(indptr: np.ndarray, first: int, last: int, of_row: int = 0) -> np.ndarray:
    """Bounds of pieces of rows ``first:last`` with about equal work, several for every thread.

    The work of a row is its number of edges plus ``of_row``.
    """
    pieces = min(_PIECES * torch.get_num_threads(), max(last - first, 1))
    found: np.ndarray = _even_pieces(indptr, first, last, pieces, of_row)
    return found


@_jit
def _even_pieces(indptr: Any, first: int, last: int, pieces: int, of_row: int) -> Any:
    bounds = np.empty(pieces + 1, np.int64)
    bounds[0], bounds[pieces] = first, last
    begin = indptr[first] + of_row * first
    whole = indptr[last] + of_row * last - begin
    for piece in range(1, pieces):
        wanted = begin + whole * piece // pieces
        low, high = bounds[piece - 1], last
        while low < high:
            middle = (low + high) // 2
            if indptr[middle] + of_row * middle < wanted:
                low = middle + 1
            else:
                high = middle
        bounds[piece] = low
    return bounds


_AHEAD = 12
"""Number of edges by which rows are prefetched, because their order is random."""
# A row's sums stay in registers during the loop over its edges, for 64, 32 or 16 columns at a time.


@_jit
def _four(column: Any, value: Any, begin: int, end: int, x: Any, width: int, c: int, sums: Any) -> None:
    start, from_, out, to = sums
    s0 = spread(like(x[0], 0))
    s1, s2, s3 = s0, s0, s0
    if from_ >= 0:
        s0, s1 = load(start, from_ + c), load(start, from_ + c + LANES)
        s2, s3 = load(start, from_ + c + 2 * LANES), load(start, from_ + c + 3 * LANES)
    for e in range(begin, end):
        if e + _AHEAD < end:
            ahead = np.int64(column[e + _AHEAD]) * width + c
            prefetch(x, ahead)
            prefetch(x, ahead + LANES)
            prefetch(x, ahead + 2 * LANES)
            prefetch(x, ahead + 3 * LANES)
        at, factor = column[e] * width + c, spread(like(x[0], value[e]))
        s0 += factor * load(x, at)
        s1 += factor * load(x, at + LANES)
        s2 += factor * load(x, at + 2 * LANES)
        s3 += factor * load(x, at + 3 * LANES)
    store(out, to + c, s0)
    store(out, to + c + LANES, s1)
    store(out, to + c + 2 * LANES, s2)
    store(out, to + c + 3 * LANES, s3)


@_jit
def _two(column: Any, value: Any, begin: int, end: int, x: Any, width: int, c: int, sums: Any) -> None:
    start, from_, out, to = sums
    s0 = spread(like(x[0], 0))
    s1 = s0
    if from_ >= 0:
        s0, s1 = load(start, from_ + c), load(start, from_ + c + LANES)
    for e in range(begin, end):
        if e + _AHEAD < end:
            ahead = np.int64(column[e + _AHEAD]) * width + c
            prefetch(x, ahead)
            prefetch(x, ahead + LANES)
        at, factor = column[e] * width + c, spread(like(x[0], value[e]))
        s0 += factor * load(x, at)
        s1 += factor * load(x, at + LANES)
    store(out, to + c, s0)
    store(out, to + c + LANES, s1)


@_jit
def _one(column: Any, value: Any, begin: int, end: int, x: Any, width: int, c: int, sums: Any) -> None:
    start, from_, out, to = sums
    s, count = spread(like(x[0], 0)), width - c
    if from_ >= 0:
        s = load_first(start, from_ + c, count)
    for e in range(begin, end):
        s += spread(like(x[0], value[e])) * load_first(x, column[e] * width + c, count)
    store_first(out, to + c, s, count)


@_jit
def weighted_rows(
    column: Any, value: Any, begin: int, end: int, x: Any, width: int, start: Any, from_: int, out: Any, to: int
) -> None:
    """out[to :] = start[from_ :] + Σ_e value[e] · x[column[e]], ``width`` numbers; ``from_`` below 0: without ``start``.

    Addresses all; ``x`` has at least one number.
    """
    c = 0
    while c + 4 * LANES <= width:
        _four(column, value, begin, end, x, width, c, (start, from_, out, to))
        c += 4 * LANES
    if c + 2 * LANES <= width:
        _two(column, value, begin, end, x, width, c, (start, from_, out, to))
        c += 2 * LANES
    while c < width:
        _one(column, value, begin, end, x, width, c, (start, from_, out, to))
        c += LANES


@_jit
def _multiply(indptr: Any, column: Any, value: Any, x: Any, onto: Any, bounds: Any, first: int, last: int) -> None:
    width = x.shape[1]
    if x.size == 0:
        return
    columns, values, source, to = address(column), address(value), address(x), address(onto)
    for row in range(bounds[first], bounds[last]):
        own = row * width
        weighted_rows(columns, values, indptr[row], indptr[row + 1], source, width, to, own, to, own)
