"""Some rows of a table, whose gradient is added to where the table's gradient already is.

A dense gradient of a lookup has as many rows as the table; torch's sparse one is added to a dense one row by row, each with
a handful of calls. Where another part of the loss has filled the table's gradient, rows are added to that, and no second
table is ever made.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F


def table_rows(table: Tensor, rows: Tensor) -> Tensor:
    """table [N, d], rows int64 [...] → [..., d]. ``table`` is a parameter, or anything else that autograd follows.

    The gradient is that of a lookup, repeated rows added up in their order. Backward adds it to ``table.grad`` in place
    where that is there and dense, and hands a dense one to autograd else.
    """
    if torch.compiler.is_compiling():
        return F.embedding(rows, table)
    found: Tensor = _TableRows.apply(table, rows)
    return found


def add_rows_(into: Tensor, rows: Tensor, values: Tensor) -> None:
    """``into`` [N, d] at ``rows`` int64 [B] += ``values`` [B, d], repeated rows in the order of ``values``."""
    into.index_add_(0, rows, values.to(into.dtype))


def check_numbers(numbers: Tensor, table: Tensor, what: str) -> None:
    """Raises IndexError where one of ``numbers``, each a ``what``, is not that of a row of ``table``."""
    if not numbers.numel():
        return
    least, most = (int(n) for n in torch.aminmax(numbers))
    if least < 0 or most >= len(table):
        article = "an" if what[0] in "aeio" else "a"
        raise IndexError(
            f"{article} {what} is {least if least < 0 else most}, and there are rows 0 to {len(table) - 1}"
        )


def gradient_of_table(table: Tensor) -> Tensor | None:
    """For a backward pass: None where ``table.grad`` is there to be added to in place, else zeros to be returned."""
    there = table.grad if table.is_leaf else None
    if there is not None and there.layout == torch.strided and there.is_contiguous():
        return None
    return torch.zeros(table.shape, dtype=table.dtype, device=table.device)


class _TableRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx, table, rows):  # type: ignore[no-untyped-def]
        # Only of a leaf is the gradient added to in place; what a step has made may go before its gradient is there.
        ctx.leaf, ctx.rows = (table if table.is_leaf else None), rows
        ctx.like = table.shape, table.dtype, table.device
        return F.embedding(rows, table)

    @staticmethod
    @once_differentiable
    def backward(ctx, gradient):  # type: ignore[no-untyped-def]
        (shape, dtype, device), rows = ctx.like, ctx.rows.reshape(-1)
        gradient = gradient.reshape(len(rows), shape[1])
        if dtype in (torch.float16, torch.bfloat16):
            # In the dtype of the table a sum of equal addends would stop growing.
            wide = torch.zeros(shape, device=device)
            add_rows_(wide, rows, gradient.float())
            return wide.to(dtype), None
        leaf = ctx.leaf
        into = torch.zeros(shape, dtype=dtype, device=device) if leaf is None else gradient_of_table(leaf)
        add_rows_(leaf.grad if into is None else into, rows, gradient)
        return into, None
