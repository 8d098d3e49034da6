"""The product of ``kernels/propagation`` with a matrix and features that are divided by rows over the processes."""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphmill.graph.sorted_unique import sorted_unique
from graphmill.kernels.propagation import CsrMatrix, product
from graphmill.training.processes import Ranks
from graphmill.training.sharding import Bounds, RowExchange, column_blocks


class ShardedMatrix:
    """A rank's rows of a constant matrix in CSR form: ``indptr`` [n + 1], ``column`` [e] and ``value`` [e] (fp32).

    Column numbers are global. ``bounds`` says which rank holds the corresponding rows of X.
    """

    def __init__(
        self,
        ranks: Ranks,
        bounds: Bounds,
        indptr: np.ndarray,
        column: np.ndarray,
        value: np.ndarray,
        device: torch.device,
    ) -> None:
        wanted = sorted_unique(column).astype(np.int64)
        self.exchange = RowExchange(ranks, bounds, wanted, device)
        self.height = bounds[-1]  # the same on all ranks, so that all go through the same blocks
        here = np.searchsorted(wanted, column)
        row = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
        order = np.argsort(here, kind="stable")
        turned = np.concatenate(([0], np.cumsum(np.bincount(here, minlength=len(wanted)))))
        self.order = torch.from_numpy(order).to(device)
        weight = torch.from_numpy(np.ascontiguousarray(value, dtype=np.float32))
        self.rows = _rows(indptr, here, weight, device)
        self.turned = _rows(turned, row[order], weight[order], device)

    def with_values(self, value: Tensor) -> ShardedMatrix:
        """The same entries with other values [e]."""
        other = copy(self)
        other.rows = replace(self.rows, value=value)
        other.turned = replace(self.turned, value=value[self.order])
        return other

    def product(self, x: Tensor) -> Tensor:
        """A X: this rank's rows of X [m, d] → its rows of the result [n, d]; differentiable in X."""
        out: Tensor = _Product.apply(x, self)
        return out


def _rows(indptr: np.ndarray, column: np.ndarray, value: Tensor, device: torch.device) -> CsrMatrix:
    arrays = (torch.from_numpy(np.ascontiguousarray(a, dtype=np.int64)) for a in (indptr, column))
    bounds, columns = arrays
    # The rows of the entries are left empty: nothing here needs them.
    return CsrMatrix(bounds.to(device), torch.empty(0, dtype=torch.int64), columns.to(device), value.to(device))


class _Product(torch.autograd.Function):
    """Multiplies X by blocks of columns, so that only a block of the other ranks' rows is in memory. The bytes sent are
    the same."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, matrix: ShardedMatrix) -> Tensor:
        ctx.matrix = matrix
        out = x.new_empty(len(matrix.rows.indptr) - 1, x.shape[1])
        for some in column_blocks(matrix.height, x.shape[1], x.element_size()):
            out[:, some] = product(matrix.rows, matrix.exchange.forward(x[:, some]))
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, None]:
        (gradient,), matrix = gradients, ctx.matrix
        if not ctx.needs_input_grad[0]:
            return None, None
        exchange = matrix.exchange
        out = gradient.new_empty(exchange.last - exchange.first, gradient.shape[1])
        for some in column_blocks(matrix.height, gradient.shape[1], gradient.element_size()):
            out[:, some] = exchange.backward(product(matrix.turned, gradient[:, some]))
        return out, None
