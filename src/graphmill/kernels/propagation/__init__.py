"""Sparse matrix times dense rows, Y = A X, differentiable in X, without a tensor of edges × width.

What belongs here: the fixed matrices of graph recommenders (normalised adjacency, attention of one epoch, item–item and
user–user graphs) and the product. Rows are sorted, so every sum has one order: the result is the same at any number of
threads, forward and backward (the backward pass is the product with the transpose, which is stored sorted as well).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from graphmill.kernels.devices import to_device
from graphmill.kernels.runtime.threads import has_numba

Backend = Literal["auto", "numba", "torch"]


@dataclass(frozen=True)
class Rows:
    """One orientation of a matrix, sorted by row: ``indptr`` int64 [R + 1]; ``row``, ``column`` int64 [E]; ``value`` [E]."""

    indptr: Tensor
    row: Tensor
    column: Tensor
    value: Tensor

    def to(self, device: torch.device) -> Rows:
        """A copy on the device."""
        return Rows(*(to_device(x, device) for x in (self.indptr, self.row, self.column, self.value)))


@dataclass(frozen=True)
class SparseMatrix:
    """A constant matrix [R, C] with E numbers that are not zero, in both orientations.

    ``order`` int64 [E]: ``transpose.value == forward.value[order]``; so new values (KGAT's attention) need no sorting.
    """

    shape: tuple[int, int]
    forward: Rows
    transpose: Rows
    order: Tensor

    def to(self, device: torch.device) -> SparseMatrix:
        """A copy on the device."""
        return SparseMatrix(
            self.shape, self.forward.to(device), self.transpose.to(device), to_device(self.order, device)
        )

    def with_values(self, value: Tensor) -> SparseMatrix:
        """The same entries with other values [E], in the order of ``forward``."""
        return replace(
            self,
            forward=replace(self.forward, value=value),
            transpose=replace(self.transpose, value=value[self.order]),
        )


def sparse_matrix(row: np.ndarray, column: np.ndarray, value: np.ndarray, shape: tuple[int, int]) -> SparseMatrix:
    """The matrix with ``value[e]`` (float) at (``row[e]``, ``column[e]``); entries at one place are added by the product.

    Entries keep their order within a row and column. On the CPU, values in fp32.
    """
    order = np.lexsort((column, row))
    row, column = row[order].astype(np.int64), column[order].astype(np.int64)
    value = np.ascontiguousarray(value[order], dtype=np.float32)
    back = np.lexsort((row, column))
    return SparseMatrix(
        shape,
        _rows(row, column, value, shape[0]),
        _rows(column[back], row[back], value[back], shape[1]),
        torch.from_numpy(back),
    )


def _rows(row: np.ndarray, column: np.ndarray, value: np.ndarray, count: int) -> Rows:
    indptr = np.concatenate(([0], np.cumsum(np.bincount(row, minlength=count)))).astype(np.int64)
    return Rows(*(torch.from_numpy(np.ascontiguousarray(a)) for a in (indptr, row, column, value)))


def bipartite(
    user: np.ndarray, item: np.ndarray, num_users: int, num_items: int, norm: Literal["symmetric", "mean"] = "symmetric"
) -> SparseMatrix:
    """The interactions as a square matrix over users, then items, both directions, each edge once.

    symmetric: D^−½ A D^−½; mean: D⁻¹ A. A node without interactions has an empty row.
    """
    head = np.concatenate((user, item.astype(np.int64) + num_users))
    tail = np.concatenate((item.astype(np.int64) + num_users, user))
    degree = np.maximum(np.bincount(head, minlength=num_users + num_items), 1).astype(np.float64)
    value = 1.0 / np.sqrt(degree[head] * degree[tail]) if norm == "symmetric" else 1.0 / degree[head]
    return sparse_matrix(head, tail, value, (num_users + num_items,) * 2)


def propagate(matrix: SparseMatrix, x: Tensor, backend: Backend = "auto", onto: Tensor | None = None) -> Tensor:
    """A X: ``matrix`` [R, C], ``x`` [C, d] → [R, d] in the dtype of ``x``; sums in fp32 (float64 for float64).

    With ``onto`` [R, d] it is added to that: the result is ``onto`` + A X, and ``onto`` stays as it is. The gradient goes to
    ``x`` and ``onto``. ``backend``: auto takes numba on the CPU where it is installed, else torch.
    """
    out: Tensor = _Propagate.apply(x, matrix, backend, onto)
    return out


def product(rows: Rows, x: Tensor, backend: Backend = "auto", onto: Tensor | None = None) -> Tensor:
    """One orientation's product, not differentiable: [R, d], added to ``onto``."""
    wide = x if x.dtype == torch.float64 else x.float()
    start = None if onto is None else onto.to(wide.dtype)
    use_numba = backend == "numba" or (backend == "auto" and x.device.type == "cpu" and has_numba())
    if use_numba:
        return _compiled(rows, wide, start).to(x.dtype)
    out = _plain(rows, wide)
    return (out if start is None else start + out).to(x.dtype)


class _Propagate(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, matrix: SparseMatrix, backend: Backend, onto: Tensor | None) -> Tensor:
        ctx.matrix, ctx.backend = matrix, backend
        return product(matrix.forward, x, backend, onto)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, None, None, Tensor | None]:
        (gradient,) = gradients
        to_onto = gradient if ctx.needs_input_grad[3] else None
        if not ctx.needs_input_grad[0]:
            return None, None, None, to_onto
        return product(ctx.matrix.transpose, gradient, ctx.backend), None, None, to_onto


def _plain(rows: Rows, x: Tensor) -> Tensor:
    """The weighted sums that torch has for bags of embeddings, which add in the rows' order and write no row an edge."""
    weights = rows.value.to(x.dtype)
    return F.embedding_bag(
        rows.column, x, rows.indptr, mode="sum", per_sample_weights=weights, include_last_offset=True
    )


def _compiled(rows: Rows, x: Tensor, onto: Tensor | None) -> Tensor:
    from graphmill.kernels.propagation import cpu as propagation_cpu

    start = None if onto is None else onto.detach().contiguous()
    return propagation_cpu.product(rows.indptr, rows.column, rows.value, x.contiguous(), onto=start)
