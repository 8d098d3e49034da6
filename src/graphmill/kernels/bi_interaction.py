"""KGAT's bi-interaction: a node mixed with its neighbourhood by their sum and by their product (Wang et al. 2019, eq. 8).

The plain form walks over the nodes a dozen times and leaves autograd a table for each of its operations. Compiled, some
rows at a time go through the whole layer while they are in the cache: some dozen where our own products can be made among
the rest (``bi_interaction_rows_numba``), else some thousand, with torch's products between compiled passes
(``bi_interaction_numba``). Backward keeps each row's neighbourhood and a byte an output, and makes sums and products again.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from graphmill.kernels.dropout import Key, draw_key, dropout
from graphmill.kernels.products import linear, wide_registers
from graphmill.kernels.propagation import SparseMatrix, propagate
from graphmill.kernels.threads import has_numba

Linear = tuple[Tensor, Tensor]
"""Weight [out, in] and bias [out]."""


def bi_interaction(
    matrix: SparseMatrix, nodes: Tensor, of_sum: Linear, of_product: Linear, slope: float, p: float, training: bool
) -> Tensor:
    """dropout(σ((e + n) W₁ᵀ + b₁) + σ((e ⊙ n) W₂ᵀ + b₂)), n = A e, σ the leaky ReLU with ``slope``.

    ``matrix`` [N, N], ``nodes`` [N, d] → [N, k]. ``p``: the dropout's rate, of the result.
    """
    if not _compiled_serves(nodes):
        around = propagate(matrix, nodes)
        mixed = F.leaky_relu(linear(nodes + around, *of_sum), slope)
        mixed = mixed + F.leaky_relu(linear(nodes * around, *of_product), slope)
        return dropout(mixed, p, training)
    p = p if training else 0.0
    key = draw_key() if p > 0.0 else (0, 0)
    out: Tensor = _BiInteraction.apply(nodes, *of_sum, *of_product, matrix, slope, p, key)
    return out


def _compiled_serves(nodes: Tensor) -> bool:
    """The compiled form is for whole precisions on the CPU; torch.compile and autocast have the plain one."""
    return (
        nodes.device.type == "cpu"
        and nodes.dtype in (torch.float32, torch.float64)
        and has_numba()
        and not torch.compiler.is_compiling()
        and not torch.is_autocast_enabled("cpu")
    )


def _compiled(weight: Tensor) -> Any:
    """The module that takes a layer with weights of this size."""
    from graphmill.kernels import bi_interaction_numba, bi_interaction_rows_numba

    few = wide_registers() and bi_interaction_rows_numba.serves(weight)
    return bi_interaction_rows_numba if few else bi_interaction_numba


class _BiInteraction(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        nodes: Tensor,
        sum_weight: Tensor,
        sum_bias: Tensor,
        product_weight: Tensor,
        product_bias: Tensor,
        matrix: SparseMatrix,
        slope: float,
        p: float,
        key: Key,
    ) -> Tensor:
        weights = sum_weight, sum_bias, product_weight, product_bias
        nodes = nodes.contiguous()
        out, around, signs = _compiled(sum_weight).forward(matrix, nodes, weights, slope, p, key)
        ctx.save_for_backward(nodes, around, signs, sum_weight, product_weight)
        ctx.matrix, ctx.slope, ctx.p, ctx.key = matrix, slope, p, key
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        nodes, around, signs, *weights = ctx.saved_tensors
        found = _compiled(weights[0]).backward(
            gradients[0].contiguous(), ctx.matrix, nodes, around, signs, weights, ctx.slope, ctx.p, ctx.key
        )
        return *found, None, None, None, None
