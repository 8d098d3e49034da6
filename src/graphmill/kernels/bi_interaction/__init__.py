"""KGAT's bi-interaction: a node mixed with its neighbourhood by their sum and by their product (Wang et al. 2019, eq. 8).

The plain form walks over the nodes a dozen times and leaves autograd a table for each of its operations. Compiled, some
dozen rows at a time go through the whole layer, products included, while they are in the cache. Backward keeps each row's
neighbourhood and where the maps are positive, and makes sums and products again.
"""

from __future__ import annotations

from collections import namedtuple
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from graphmill.kernels.dropout import Key, draw_key, dropout
from graphmill.kernels.products import linear
from graphmill.kernels.propagation import SparseMatrix, propagate
from graphmill.kernels.runtime.processor import own_blocks
from graphmill.kernels.table_rows import add_rows_, table_rows

Linear = tuple[Tensor, Tensor]
"""Weight [out, in] and bias [out]."""
_LARGEST = 1 << 15
"""Numbers of a weight, at most, where rows go through some dozen at a time: both are in the second cache, with room for
the rows."""


def bi_interaction(
    matrix: SparseMatrix, nodes: Tensor, of_sum: Linear, of_product: Linear, slope: float, p: float, training: bool
) -> Tensor:
    """dropout(σ((e + n) W₁ᵀ + b₁) + σ((e ⊙ n) W₂ᵀ + b₂)), n = A e, σ the leaky ReLU with ``slope``.

    ``matrix`` [N, N], ``nodes`` [N, d] → [N, k]. ``p``: the dropout's rate, of the result.
    """
    if not _compiled_serves(nodes, of_sum[0]):
        return _plain(matrix, nodes, of_sum, of_product, slope, p, training)
    out: Tensor = _BiInteraction.apply(
        nodes, *of_sum, *of_product, matrix, slope, *_rate_and_key(p, training), None, True, None
    )
    return out


def bi_interaction_at(
    rows: Tensor,
    whole: bool,
    matrix: SparseMatrix,
    nodes: Tensor,
    of_sum: Linear,
    of_product: Linear,
    slope: float,
    p: float,
    training: bool,
    asked: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """The layer, for all nodes or, not ``whole``, for ``rows`` alone; and ``nodes[rows]``, [n, d], beside it.

    ``rows`` int64 [n] ascend, each once. A row has the result, and the mask, that it has among all. Where the layer is
    compiled, rows of its input have their gradient added to the one that comes through the layer; a lookup of its own makes
    a table of zeros for it, and autograd a third one of both. Elsewhere the layer is computed for all nodes and ``rows`` are
    taken.

    ``asked`` int64 [m], ascending, each once: of the ``whole`` result nobody reads other rows; some forms leave them 0.
    """
    if not _compiled_serves(nodes, of_sum[0]):
        out = _plain(matrix, nodes, of_sum, of_product, slope, p, training)
        return out if whole else table_rows(out, rows), table_rows(nodes, rows)
    out, looked_up = _BiInteraction.apply(
        nodes, *of_sum, *of_product, matrix, slope, *_rate_and_key(p, training), rows, whole, asked
    )
    return out, looked_up


def _plain(
    matrix: SparseMatrix, nodes: Tensor, of_sum: Linear, of_product: Linear, slope: float, p: float, training: bool
) -> Tensor:
    return mix(nodes, propagate(matrix, nodes), of_sum, of_product, slope, p, training)


def mix(
    nodes: Tensor, around: Tensor, of_sum: Linear, of_product: Linear, slope: float, p: float, training: bool
) -> Tensor:
    """:func:`bi_interaction` of nodes [n, d] whose neighbourhoods ``around`` [n, d] are there already → [n, k]."""
    mixed = F.leaky_relu(linear(nodes + around, *of_sum), slope)
    mixed = mixed + F.leaky_relu(linear(nodes * around, *of_product), slope)
    return dropout(mixed, p, training)


def _rate_and_key(p: float, training: bool) -> tuple[float, Key]:
    """The rate that acts, and a key where it does."""
    p = p if training else 0.0
    return p, draw_key() if p > 0.0 else (0, 0)


def _compiled_serves(nodes: Tensor, weight: Tensor) -> bool:
    """The compiled form is for whole precisions on the CPU; torch.compile and autocast have the plain one."""
    return (
        nodes.device.type == "cpu"
        and nodes.dtype in (torch.float32, torch.float64)
        and by_rows(weight.numel())
        and not torch.compiler.is_compiling()
        and not torch.is_autocast_enabled("cpu")
    )


def by_rows(numbers: int) -> bool:
    """Whether weights of so many numbers each are for the compiled form, on this machine."""
    return numbers <= _LARGEST and own_blocks()


_Operands = namedtuple(
    "_Operands", "nodes sum_weight sum_bias product_weight product_bias matrix slope p key rows whole asked"
)


class _BiInteraction(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *given: Any) -> Tensor | tuple[Tensor, Tensor]:
        from graphmill.kernels.bi_interaction import cpu

        o = _Operands(*given)
        weights = o.sum_weight, o.sum_bias, o.product_weight, o.product_bias
        nodes, placed = o.nodes.contiguous(), o.whole and o.asked is not None
        chosen = o.asked if placed else None if o.whole else o.rows
        # Before the compiled code, which takes their numbers as they are: a row that is not there raises here.
        looked_up = None if o.rows is None else nodes.index_select(0, o.rows)
        out, around, signs = cpu.forward(o.matrix, nodes, weights, o.slope, o.p, o.key, chosen, placed)
        ctx.save_for_backward(nodes, around, signs, o.sum_weight, o.product_weight)
        ctx.matrix, ctx.slope, ctx.mask, ctx.rows = o.matrix, o.slope, (o.p, o.key), o.rows
        ctx.chosen, ctx.placed = chosen, placed
        return out if looked_up is None else (out, looked_up)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        from graphmill.kernels.bi_interaction import cpu

        nodes, around, signs, *weights = ctx.saved_tensors
        to_nodes, *others = cpu.backward(
            gradients[0].contiguous(), ctx.matrix, nodes, around, signs, weights, ctx.slope, ctx.mask, ctx.chosen,
            ctx.placed,
        )  # fmt: skip
        if ctx.rows is not None:
            add_rows_(to_nodes, ctx.rows, gradients[1])
        return to_nodes, *others, None, None, None, None, None, None, None
