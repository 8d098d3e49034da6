"""KGAT's bi-interaction: combines a node with its neighbourhood by their sum and their product (Wang et al. 2019, eq. 8).

The plain form reads all nodes a dozen times, and autograd keeps a table for each operation. The compiled form takes a
few dozen rows at a time through the whole layer, matrix products included, while they are in the cache. For the
backward pass it keeps each row's neighbourhood and the signs of the linear maps, and recomputes sums and products.
"""

from __future__ import annotations

from collections import namedtuple
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from graphmill.kernels.devices import suits_compiled
from graphmill.kernels.dropout import Key, draw_key, dropout
from graphmill.kernels.products import linear
from graphmill.kernels.propagation import SparseMatrix, propagate
from graphmill.kernels.runtime.processor import own_blocks
from graphmill.kernels.table_rows import add_rows_, table_rows

Linear = tuple[Tensor, Tensor]
"""Weight [out, in] and bias [out]."""
_LARGEST = 1 << 15
"""Largest size (numbers) of a weight for the compiled form: both weights and a block of rows fit the L2 cache."""


def bi_interaction(
    matrix: SparseMatrix, nodes: Tensor, of_sum: Linear, of_product: Linear, slope: float, p: float, training: bool
) -> Tensor:
    """dropout(σ((e + n) W₁ᵀ + b₁) + σ((e ⊙ n) W₂ᵀ + b₂)), n = A e, σ the leaky ReLU with ``slope``.

    ``matrix`` [N, N], ``nodes`` [N, d] → [N, k]. ``p``: dropout rate of the result.
    """
    if not _compiled_serves(nodes, of_sum[0]):
        return mix(nodes, propagate(matrix, nodes), of_sum, of_product, slope, p, training)
    return _BiInteraction.apply(
        nodes, *of_sum, *of_product, matrix, slope, *_rate_and_key(p, training), None, True, None
    )


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
    """The layer for all nodes (``whole``) or only for ``rows``; and ``nodes[rows]`` [n, d].

    ``rows`` int64 [n], ascending and unique. Result and dropout mask of a row are the same as in the layer for all
    nodes. The compiled form adds the gradient of ``nodes[rows]`` to that of the layer's input in place. A separate
    lookup would allocate a table of zeros for it, and autograd a third table for their sum. The plain form computes the
    layer for all nodes and selects ``rows``.

    ``asked`` int64 [m], ascending and unique: the only rows of the ``whole`` result that the caller reads. The compiled
    form leaves the others 0.
    """
    if not _compiled_serves(nodes, of_sum[0]):
        out = mix(nodes, propagate(matrix, nodes), of_sum, of_product, slope, p, training)
        return out if whole else table_rows(out, rows), table_rows(nodes, rows)
    out, looked_up = _BiInteraction.apply(
        nodes, *of_sum, *of_product, matrix, slope, *_rate_and_key(p, training), rows, whole, asked
    )
    return out, looked_up


def mix(
    nodes: Tensor, around: Tensor, of_sum: Linear, of_product: Linear, slope: float, p: float, training: bool
) -> Tensor:
    """:func:`bi_interaction` for nodes [n, d] with given neighbourhoods ``around`` [n, d] → [n, k]."""
    mixed = F.leaky_relu(linear(nodes + around, *of_sum), slope)
    mixed = mixed + F.leaky_relu(linear(nodes * around, *of_product), slope)
    return dropout(mixed, p, training)


def _rate_and_key(p: float, training: bool) -> tuple[float, Key]:
    """The effective dropout rate, and a key for it (zeros without dropout)."""
    p = p if training else 0.0
    return p, draw_key() if p > 0.0 else (0, 0)


def _compiled_serves(nodes: Tensor, weight: Tensor) -> bool:
    """Whether the compiled form is used: for fp32 and float64 on the CPU, without torch.compile and autocast."""
    return suits_compiled(nodes) and by_rows(weight.numel()) and not torch.is_autocast_enabled("cpu")


def by_rows(numbers: int) -> bool:
    """Whether this machine uses the compiled form for weights of this size (numbers in each)."""
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
        # This lookup raises for an invalid row number. It comes first, because compiled code does not check.
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
