"""A sparse matrix times dense rows, compiled. Each thread takes whole rows with about equally many edges."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphmill.kernels.runtime.jit import jit_fast
from graphmill.kernels.runtime.team import over_ranges
from graphmill.kernels.runtime.vectors import (
    LANES,
    address,
    fetch,
    lanes_of,
    like,
    load_first,
    load_like,
    spread,
    spread_four,
    spread_like,
    spread_two,
    store,
    store_first,
)

_PIECES = 16
"""Pieces per thread: small pieces balance the load, because rows differ in length."""


def add_product_(indptr: Tensor, column: Tensor, value: Tensor, x: Tensor, onto: Tensor) -> None:
    """``onto`` [R, d] += Σ_e value_e · x[column_e] over each row's edges, in their order; ``x`` [C, d]. All contiguous."""
    arrays = tuple(t.detach().numpy() for t in (indptr, column, value, x, onto))
    bounds = even_pieces(arrays[0])
    over_ranges(_multiply, (*arrays, bounds), len(bounds) - 1, column.numel() * x.shape[1])


def even_pieces(indptr: np.ndarray, of_row: int = 0) -> np.ndarray:
    """Bounds of pieces of rows with about equal work, several for every thread.

    The work of a row is its number of edges plus ``of_row``.
    """
    pieces = min(_PIECES * torch.get_num_threads(), max(len(indptr) - 1, 1))
    work = indptr + of_row * np.arange(len(indptr)) if of_row else indptr
    wanted = work[-1] * np.arange(1, pieces) // pieces
    return np.concatenate(([0], np.searchsorted(work, wanted), [len(indptr) - 1]))


_AHEAD = 12
"""Number of edges by which rows are prefetched, because their order is random."""


@jit_fast
def _columns(edges: Any, x: Any, width: int, c: int, sums: Any, nothing: Any) -> None:
    """As many columns as ``nothing``, a vector of zeros, has. Their sums stay in registers during the loop over edges."""
    (column, value, begin, end), (start, from_, out, to) = edges, sums
    s = nothing
    if from_ >= 0:
        s = load_like(nothing, start, from_ + c)
    for e in range(begin, end):
        if e + _AHEAD < end:
            fetch(x, np.int64(column[e + _AHEAD]) * width + c, lanes_of(nothing))
        s += spread_like(nothing, value[e]) * load_like(nothing, x, column[e] * width + c)
    store(out, to + c, s)


@jit_fast
def _last_columns(edges: Any, x: Any, width: int, c: int, sums: Any) -> None:
    (column, value, begin, end), (start, from_, out, to) = edges, sums
    s, count = spread(like(x[0], 0)), width - c
    if from_ >= 0:
        s = load_first(start, from_ + c, count)
    for e in range(begin, end):
        s += spread(like(x[0], value[e])) * load_first(x, column[e] * width + c, count)
    store_first(out, to + c, s, count)


@jit_fast
def weighted_rows(
    column: Any, value: Any, begin: int, end: int, x: Any, width: int, start: Any, from_: int, out: Any, to: int
) -> None:
    """out[to :] = start[from_ :] + Σ_e value[e] · x[column[e]], ``width`` numbers; ``from_`` below 0: without ``start``.

    Addresses all; ``x`` has at least one number.
    """
    c, zero, edges, sums = 0, like(x[0], 0), (column, value, begin, end), (start, from_, out, to)
    while c + 4 * LANES <= width:
        _columns(edges, x, width, c, sums, spread_four(zero))
        c += 4 * LANES
    if c + 2 * LANES <= width:
        _columns(edges, x, width, c, sums, spread_two(zero))
        c += 2 * LANES
    while c < width:
        _last_columns(edges, x, width, c, sums)
        c += LANES


@jit_fast
def _multiply(indptr: Any, column: Any, value: Any, x: Any, onto: Any, bounds: Any, first: int, last: int) -> None:
    width = x.shape[1]
    if x.size == 0:
        return
    columns, values, source, to = address(column), address(value), address(x), address(onto)
    for row in range(bounds[first], bounds[last]):
        own = row * width
        weighted_rows(columns, values, indptr[row], indptr[row + 1], source, width, to, own, to, own)
