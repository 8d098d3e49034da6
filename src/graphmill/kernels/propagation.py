"""Sparse matrix times dense matrix, Y = A X, differentiable in X, without a tensor of edges × width.

It is for the constant matrices of graph recommenders (normalised adjacency, attention of one epoch, item–item and
user–user graphs). Rows are sorted, so every sum has one order, and the result is the same at any number of threads. The
backward pass is the product with the transpose, which is stored sorted, too.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from graphmill.kernels.devices import to_device, wide


@dataclass(frozen=True)
class CsrMatrix:
    """One orientation of a matrix, sorted by row: ``indptr`` int64 [R + 1]; ``row``, ``column`` int64 [E]; ``value`` [E]."""

    indptr: Tensor
    row: Tensor
    column: Tensor
    value: Tensor

    def to(self, device: torch.device) -> CsrMatrix:
        """A copy on the device."""
        return CsrMatrix(*(to_device(x, device) for x in (self.indptr, self.row, self.column, self.value)))


@dataclass(frozen=True)
class SparseMatrix:
    """A constant matrix [R, C] with E stored entries, in both orientations.

    ``order`` int64 [E]: ``transpose.value == forward.value[order]``; so new values (KGAT's attention) need no sorting.
    """

    shape: tuple[int, int]
    forward: CsrMatrix
    transpose: CsrMatrix
    order: Tensor

    def to(self, device: torch.device) -> SparseMatrix:
        """A copy on the device."""
        return SparseMatrix(
            self.shape, self.forward.to(device), self.transpose.to(device), to_device(self.order, device)
        )

    def with_values(self, value: Tensor) -> SparseMatrix:
        """The same entries with other values [E], in the order of ``forward``."""
        forward, transpose = replace(self.forward, value=value), replace(self.transpose, value=value[self.order])
        return replace(self, forward=forward, transpose=transpose)


def sparse_matrix(row: np.ndarray, column: np.ndarray, value: np.ndarray, shape: tuple[int, int]) -> SparseMatrix:
    """The matrix with ``value[e]`` (float) at (``row[e]``, ``column[e]``). The product sums duplicate entries.

    Entries of one row and column keep their order. The matrix is on the CPU, with values in fp32.
    """
    order = np.lexsort((column, row))
    row, column = row[order].astype(np.int64), column[order].astype(np.int64)
    value = np.ascontiguousarray(value[order], dtype=np.float32)
    back = np.lexsort((row, column))
    forward, transpose = _rows(row, column, value, shape[0]), _rows(column[back], row[back], value[back], shape[1])
    return SparseMatrix(shape, forward, transpose, torch.from_numpy(back))


def _rows(row: np.ndarray, column: np.ndarray, value: np.ndarray, count: int) -> CsrMatrix:
    indptr = np.concatenate(([0], np.cumsum(np.bincount(row, minlength=count)))).astype(np.int64)
    return CsrMatrix(*(torch.from_numpy(np.ascontiguousarray(a)) for a in (indptr, row, column, value)))


def propagate(matrix: SparseMatrix, x: Tensor) -> Tensor:
    """A X: ``matrix`` [R, C], ``x`` [C, d] → [R, d] in the dtype of ``x``; sums in fp32 (float64 for float64)."""
    return _Propagate.apply(x, matrix)


class _Propagate(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, matrix: SparseMatrix) -> Tensor:
        ctx.matrix = matrix
        return product(matrix.forward, x)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, None]:
        return (product(ctx.matrix.transpose, gradients[0]) if ctx.needs_input_grad[0] else None), None


def product(rows: CsrMatrix, x: Tensor) -> Tensor:
    """A X, not differentiable, by torch's ``embedding_bag``.

    It sums in the order of the entries, and writes no row per edge.
    """
    rows_of_x = wide(x)
    weights = rows.value.to(rows_of_x.dtype)
    return F.embedding_bag(
        rows.column, rows_of_x, rows.indptr, mode="sum", per_sample_weights=weights, include_last_offset=True
    ).to(x.dtype)
