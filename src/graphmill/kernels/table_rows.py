"""Some rows of a table, whose gradient is added to where the table's gradient already is.

A dense gradient of a lookup has as many rows as the table, nearly all zero; torch's sparse one is added to a dense one row
by row, each with a handful of calls. Where another part of the loss has filled the table's gradient, neither is needed.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from graphmill.kernels.devices import has_sparse


def table_rows(table: Tensor, rows: Tensor) -> Tensor:
    """table [N, d], rows int64 [B] → [B, d]. ``table`` is a parameter, or anything else that autograd follows.

    The gradient is that of a lookup, repeated rows added up. Backward adds it to ``table.grad`` in place where that is there
    and dense, and hands a sparse one (dense on MPS) to autograd else.
    """
    found: Tensor = _TableRows.apply(table, rows)
    return found


class _TableRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx, table, rows):  # type: ignore[no-untyped-def]
        ctx.table, ctx.rows = table, rows
        return F.embedding(rows, table)

    @staticmethod
    @once_differentiable
    def backward(ctx, gradient):  # type: ignore[no-untyped-def]
        table, rows = ctx.table, ctx.rows
        there = table.grad if table.is_leaf else None
        if there is not None and there.layout == torch.strided:
            there.index_add_(0, rows, gradient.to(there.dtype))
            return None, None
        if has_sparse(table.device) and table.is_leaf:
            return torch.sparse_coo_tensor(rows[None], gradient.to(table.dtype), table.shape), None
        return torch.zeros_like(table).index_add_(0, rows, gradient.to(table.dtype)), None
