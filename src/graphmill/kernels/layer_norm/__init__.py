"""LayerNorm over the last axis (Ba et al. 2016): (x − mean) / √(variance + ε) · γ + β, with one pass over memory each way.

Torch's backward pass goes over the rows twice, and once more for γ and β. The compiled form is in ``layer_norm.cpu``;
elsewhere this is torch's own.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from graphmill.kernels.runtime.threads import has_numba


class LayerNorm(nn.LayerNorm):
    """``torch.nn.LayerNorm`` over the last axis, affine: same parameters, same result."""

    def forward(self, input: Tensor) -> Tensor:
        """[..., d] → the same."""
        return layer_norm(input, self.weight, self.bias, self.eps)


def layer_norm(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    """[..., d], γ [d], β [d] → [..., d]."""
    plain = x.device.type == "cpu" and x.dtype == weight.dtype and x.dtype in (torch.float32, torch.float64)
    if not plain or not has_numba() or not x.numel() or torch.compiler.is_compiling():
        return F.layer_norm(x, weight.shape, weight, bias, eps)
    found: Tensor = _LayerNorm.apply(x.contiguous(), weight, bias, eps)
    return found


class _LayerNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
        from graphmill.kernels.layer_norm import cpu as layer_norm_cpu

        out, statistics = layer_norm_cpu.forward(x, weight, bias, eps)
        ctx.save_for_backward(x, weight, statistics)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        from graphmill.kernels.layer_norm import cpu as layer_norm_cpu

        x, weight, statistics = ctx.saved_tensors
        return *layer_norm_cpu.backward(gradient.contiguous(), x, weight, statistics), None
