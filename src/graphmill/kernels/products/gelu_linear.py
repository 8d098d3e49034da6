"""GELU followed by a linear map, which keeps one array for the backward pass instead of two."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from graphmill.kernels.products import product


def gelu_linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """gelu(x) Wᵀ + b: x [n, in], weight [out, in], bias [out], all in x's precision. Saves x only; gelu is recomputed."""
    return _GeluLinear.apply(x, weight.to(x.dtype), bias.to(x.dtype))


def gelu_linear_reference(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """The same function from torch's operations, which save x and gelu(x)."""
    return F.linear(F.gelu(x), weight.to(x.dtype), bias.to(x.dtype))


class _GeluLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        with torch.autocast(x.device.type, enabled=False):
            return product(F.gelu(x), weight.T, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x, weight = ctx.saved_tensors
        with torch.autocast(x.device.type, enabled=False):
            d_weight = product(d_y.mT, F.gelu(x))
            return torch.ops.aten.gelu_backward(product(d_y, weight), x), d_weight, d_y.sum(0)
