"""What a sequence model starts from: item vectors, scaled, plus position vectors, with dropout.

One pass over the rows each way, where torch makes a table of each: the rows of either table, the scaled ones, the sum.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from graphmill.kernels.dropout import Key, draw_key, dropout
from graphmill.kernels.runtime.threads import has_numba
from graphmill.kernels.table_rows import gradient_of_table, table_rows


def input_embedding(
    table: Tensor, items: Tensor, positions: Tensor, places: Tensor, scale: float, p: float, training: bool
) -> Tensor:
    """dropout(``scale`` · table[items] + positions[places]): [I, d], int64 [R], [L, d], int64 [R] → [R, d].

    Gradients are added to those of the tables in place, where these are there.
    """
    if not _compiled_serves(table, positions):
        return dropout(table_rows(table, items) * scale + table_rows(positions, places), p, training)
    p = p if training else 0.0
    key = draw_key() if p > 0.0 else (0, 0)
    found: Tensor = _InputEmbedding.apply(table, positions, items.contiguous(), places.contiguous(), scale, p, key)
    return found


def _compiled_serves(table: Tensor, positions: Tensor) -> bool:
    return (
        table.device.type == "cpu"
        and table.dtype == positions.dtype in (torch.float32, torch.float64)
        and has_numba()
        and not torch.compiler.is_compiling()
    )


class _InputEmbedding(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, table: Tensor, positions: Tensor, items: Tensor, places: Tensor, scale: float, p: float, key: Key
    ) -> Tensor:
        from graphmill.kernels.input_embedding import cpu as kernels

        ctx.tables, ctx.rest = (table, positions), (items, places, scale, p, key)
        return kernels.forward(table.contiguous(), positions.contiguous(), items, places, scale, p, key)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        from graphmill.kernels.input_embedding import cpu as kernels

        table, positions = ctx.tables
        need_table, need_positions, *_ = ctx.needs_input_grad
        # A table that stays as it is has a gradient made for nothing: both are made in one pass.
        of_table = gradient_of_table(table) if need_table else torch.zeros_like(table)
        of_positions = gradient_of_table(positions) if need_positions else torch.zeros_like(positions)
        kernels.add_gradients_(
            gradient.contiguous(),
            table.grad if of_table is None else of_table,
            positions.grad if of_positions is None else of_positions,
            *ctx.rest,
        )
        found = of_table if need_table else None, of_positions if need_positions else None
        return *found, None, None, None, None, None
