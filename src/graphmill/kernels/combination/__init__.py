"""MMGCN's combination layer (Wei et al., MM 2019): a node's messages, its own vector and its ID embedding made one.

Plain, each of its element-wise steps is a pass over all nodes, and autograd keeps a table for each. Compiled, some dozen
rows at a time go through the layer, products included, and backward finds the ReLUs' signs in a byte an output.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from graphmill.kernels.products import linear
from graphmill.kernels.runtime.processor import own_blocks

Linear = tuple[Tensor, Tensor]
"""Weight [out, in] and bias [out]."""
LARGEST = 1 << 15
"""Numbers of a weight for the compiled form, at most: all are in the second cache, with room for the rows."""


def combine(messages: Tensor, rows: Tensor, identity: Tensor, own: Linear, joint: Linear, slope: float) -> Tensor:
    """σ([σ(m) ‖ x̂] Gᵀ + g), x̂ = σ(r Aᵀ + a) + z; σ the leaky ReLU with ``slope``, above 0.

    ``messages`` m [n, w], ``rows`` r [n, v], ``identity`` z [n, d]; ``own`` (A [d, v], a), ``joint`` (G [k, w + d], g); →
    [n, k]. With a G of w columns x̂ is added instead, and k = d: σ(σ(m) Gᵀ + g + x̂).
    """
    concatenate = joint[0].shape[1] != messages.shape[1]
    if _compiled_serves(messages, rows, identity) and max(own[0].numel(), joint[0].numel()) <= LARGEST:
        out: Tensor = _Combine.apply(messages, rows, identity, *own, *joint, slope)
        return out
    messages = F.leaky_relu_(messages, slope)
    inner = F.leaky_relu_(linear(rows, *own), slope) + identity
    if not concatenate:
        return F.leaky_relu_(linear(messages, *joint) + inner, slope)
    # [h ‖ x̂] G = h G₁ + x̂ G₂, without the copy.
    first, second = joint[0].split((messages.shape[1], inner.shape[1]), dim=1)
    return F.leaky_relu_(linear(messages, first, joint[1]) + linear(inner, second), slope)


def _compiled_serves(*tables: Tensor) -> bool:
    """The compiled form is for whole precisions on CPUs with blocks for it; torch.compile and autocast take the plain."""
    return (
        all(t.device.type == "cpu" and t.dtype in (torch.float32, torch.float64) for t in tables)
        and own_blocks()
        and not torch.compiler.is_compiling()
        and not torch.is_autocast_enabled("cpu")
    )


class _Combine(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        messages: Tensor,
        rows: Tensor,
        identity: Tensor,
        own_weight: Tensor,
        own_bias: Tensor,
        joint_weight: Tensor,
        joint_bias: Tensor,
        slope: float,
    ) -> Tensor:
        from graphmill.kernels.combination import cpu

        tables = messages.contiguous(), rows.contiguous(), identity.contiguous()
        weights = own_weight, own_bias, joint_weight, joint_bias
        out, hidden, inner, signs = cpu.forward(tables, weights, slope)
        ctx.save_for_backward(tables[1], hidden, inner, signs, own_weight, joint_weight)
        ctx.slope = slope
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        from graphmill.kernels.combination import cpu

        kept, needed = ctx.saved_tensors, ctx.needs_input_grad[:3]
        return *cpu.backward(gradients[0].contiguous(), kept, ctx.slope, needed), None
