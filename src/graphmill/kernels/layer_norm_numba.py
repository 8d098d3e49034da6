"""``layer_norm`` for the CPU, compiled. A row stays in the first cache between its mean and its result."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import torch
from torch import Tensor

from graphmill.kernels.compiled_math import FAST
from graphmill.kernels.team import in_ranges, over_ranges

_jit = numba.njit(nogil=True, fastmath=FAST, error_model="numpy", cache=True)
_ROWS = 256
"""Rows whose part of the gradients of γ and β is one sum, so that these do not depend on the number of threads."""


def forward(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """Contiguous [..., d] → result, and [rows, 2]: mean and 1 / √(variance + ε)."""
    width = x.shape[-1]
    rows = x.numel() // width
    out, statistics = torch.empty_like(x), x.new_empty(rows, 2)
    flat = [t.detach().view(rows, width).numpy() for t in (x, out)]
    arrays = (*flat, weight.detach().numpy(), bias.detach().numpy(), statistics.numpy())
    over_ranges(_forward_ranges, (*arrays, arrays[0].dtype.type(eps)), -(-rows // _ROWS), x.numel())
    return out, statistics


def backward(gradient: Tensor, x: Tensor, weight: Tensor, statistics: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of x, γ and β."""
    width = x.shape[-1]
    rows = x.numel() // width
    parts = -(-rows // _ROWS)
    out, sums = torch.empty_like(x), x.new_zeros(2, parts, width)
    flat = [t.detach().view(rows, width).numpy() for t in (gradient, x, out)]
    arrays = (*flat, weight.detach().numpy(), statistics.numpy(), sums[0].numpy(), sums[1].numpy())
    over_ranges(_backward_ranges, arrays, parts, x.numel())
    into_weight, into_bias = sums.sum(1)
    return out, into_weight, into_bias


@_jit
def _forward(x: Any, out: Any, weight: Any, bias: Any, statistics: Any, eps: Any, first: int, last: int) -> None:
    rows, width = x.shape
    inverse = x.dtype.type(1) / x.dtype.type(width)
    for row in range(first * _ROWS, min(last * _ROWS, rows)):
        total = eps - eps
        for j in range(width):
            total += x[row, j]
        mean = total * inverse
        spread = eps - eps
        for j in range(width):
            spread += (x[row, j] - mean) * (x[row, j] - mean)
        scale = x.dtype.type(1) / np.sqrt(spread * inverse + eps)
        for j in range(width):
            out[row, j] = (x[row, j] - mean) * scale * weight[j] + bias[j]
        statistics[row, 0], statistics[row, 1] = mean, scale


@_jit
def _backward(
    gradient: Any,
    x: Any,
    out: Any,
    weight: Any,
    statistics: Any,
    into_weight: Any,
    into_bias: Any,
    first: int,
    last: int,
) -> None:
    rows, width = x.shape
    inverse = x.dtype.type(1) / x.dtype.type(width)
    for part in range(first, last):
        for row in range(part * _ROWS, min((part + 1) * _ROWS, rows)):
            mean, scale = statistics[row, 0], statistics[row, 1]
            total, product = mean - mean, mean - mean
            for j in range(width):
                g, normed = gradient[row, j], (x[row, j] - mean) * scale
                into_weight[part, j] += g * normed
                into_bias[part, j] += g
                total += g * weight[j]
                product += g * weight[j] * normed
            total, product = total * inverse, product * inverse
            for j in range(width):
                normed = (x[row, j] - mean) * scale
                out[row, j] = scale * (gradient[row, j] * weight[j] - total - normed * product)


@_jit
def _forward_ranges(arguments: Any, first: int, last: int, team: Any) -> None:
    in_ranges(_forward, arguments, first, last, team)


@_jit
def _backward_ranges(arguments: Any, first: int, last: int, team: Any) -> None:
    in_ranges(_backward, arguments, first, last, team)
