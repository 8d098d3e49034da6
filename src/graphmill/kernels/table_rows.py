"""Looks up rows of a table. Their gradient is added in place to the table's gradient if it exists.

A dense gradient of a lookup has as many rows as the table. torch adds a sparse gradient to a dense one row by row, with
a few calls for each. If another part of the loss has already filled the table's gradient, this lookup adds its rows to
it and allocates no second table.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F


def table_rows(table: Tensor, rows: Tensor) -> Tensor:
    """table [N, d], rows int64 [...] → [..., d]. ``table`` is a parameter or another tensor with a gradient.

    The gradient of repeated rows is summed in their order. The backward pass adds it in place to ``table.grad`` if that
    exists and is dense; otherwise it returns a dense gradient to autograd.
    """
    if torch.compiler.is_compiling():
        return F.embedding(rows, table)
    return _TableRows.apply(table, rows)


def add_rows_(into: Tensor, rows: Tensor, values: Tensor) -> None:
    """``into`` [N, d] at ``rows`` int64 [B] += ``values`` [B, d]. Repeated rows are summed in the order of ``values``."""
    into.index_add_(0, rows, values.to(into.dtype))


def check_numbers(numbers: Tensor, table: Tensor, what: str) -> None:
    """Raise IndexError if one of ``numbers`` is not a row of ``table``. ``what`` names a number in the message."""
    if not numbers.numel():
        return
    least, most = (int(n) for n in torch.aminmax(numbers))
    if least < 0 or most >= len(table):
        article = "an" if what[0] in "aeio" else "a"
        raise IndexError(
            f"{article} {what} is {least if least < 0 else most}, and there are rows 0 to {len(table) - 1}"
        )


def gradient_of_table(table: Tensor) -> Tensor | None:
    """In backward: None if the gradient can be added to ``table.grad`` in place, else zeros to fill and return."""
    existing = table.grad if table.is_leaf else None
    if existing is not None and existing.layout == torch.strided and existing.is_contiguous():
        return None
    return torch.zeros(table.shape, dtype=table.dtype, device=table.device)


class _TableRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx, table, rows):  # type: ignore[no-untyped-def]
        # Add in place only for a leaf: an intermediate tensor may be released before its gradient exists.
        ctx.leaf, ctx.rows = (table if table.is_leaf else None), rows
        ctx.like = table.shape, table.dtype, table.device
        return F.embedding(rows, table)

    @staticmethod
    @once_differentiable
    def backward(ctx, gradient):  # type: ignore[no-untyped-def]
        (shape, dtype, device), rows = ctx.like, ctx.rows.reshape(-1)
        gradient = gradient.reshape(len(rows), shape[1])
        if dtype in (torch.float16, torch.bfloat16):
            # Sum in fp32: in half precision a long sum stops growing.
            wide = torch.zeros(shape, device=device)
            add_rows_(wide, rows, gradient.float())
            return wide.to(dtype), None
        leaf = ctx.leaf
        into = torch.zeros(shape, dtype=dtype, device=device) if leaf is None else gradient_of_table(leaf)
        add_rows_(leaf.grad if into is None else into, rows, gradient)
        return into, None
