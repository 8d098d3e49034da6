"""The product of ``propagation`` for the CPU, compiled. A thread takes whole rows, of about as many edges each."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import torch
from torch import Tensor

from graphmill.kernels.team import in_ranges, over_ranges

_jit = numba.njit(nogil=True, fastmath={"reassoc", "contract", "nsz", "arcp"}, error_model="numpy", cache=True)
_PIECES = 16
"""Pieces a thread: rows differ in length, so what is equal in edges is dealt out in small parts."""


def product(
    indptr: Tensor, column: Tensor, value: Tensor, x: Tensor, out: Tensor | None = None, onto: Tensor | None = None
) -> Tensor:
    """[R, d]: Σ_e value_e · x[column_e] over each row's edges, in their order. ``x`` [C, d] fp32 or float64, contiguous.

    The sums start from ``onto`` [R, d]; with ``out`` they are written there, which may be ``onto`` itself.
    """
    rows = indptr.numel() - 1
    out = torch.empty(rows, x.shape[1], dtype=x.dtype) if out is None else out
    start = x.new_empty(0, x.shape[1]) if onto is None else onto
    arrays = (indptr.numpy(), column.numpy(), value.numpy(), x.detach().numpy(), start.detach().numpy(), out.numpy())
    bounds = even_pieces(arrays[0], 0, rows)
    over_ranges(_multiply_ranges, (*arrays, bounds), len(bounds) - 1, column.numel() * x.shape[1])
    return out


def even_pieces(indptr: np.ndarray, first: int, last: int) -> np.ndarray:
    """Bounds of pieces of rows ``first:last`` with about as many edges each, some for every thread."""
    pieces = min(_PIECES * torch.get_num_threads(), max(last - first, 1))
    wanted = np.linspace(indptr[first], indptr[last], pieces + 1)[1:-1]
    inner = np.searchsorted(indptr[first : last + 1], wanted) + first
    return np.concatenate(([first], np.minimum(np.maximum.accumulate(inner), last), [last])).astype(np.int64)


@_jit
def _multiply(
    indptr: Any, column: Any, value: Any, x: Any, start: Any, out: Any, bounds: Any, first: int, last: int
) -> None:
    width = x.shape[1]
    for row in range(bounds[first], bounds[last]):
        target = out[row]
        if len(start):
            before = start[row]
            for j in range(width):
                target[j] = before[j]
        else:
            for j in range(width):
                target[j] = 0
        for e in range(indptr[row], indptr[row + 1]):
            source = x[np.uint64(column[e])]
            factor = value[e]
            for j in range(width):
                target[j] += factor * source[j]


@_jit
def _multiply_ranges(arguments: Any, first: int, last: int, team: Any) -> None:
    in_ranges(_multiply, arguments, first, last, team)
