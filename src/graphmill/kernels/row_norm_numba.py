"""``row_norm`` for the CPU, compiled. A row stays in the first cache between its norm and its result."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import torch
from torch import Tensor

from graphmill.kernels.compiled_math import FAST
from graphmill.kernels.team import in_ranges, over_ranges

_jit = numba.njit(nogil=True, fastmath=FAST, error_model="numpy", cache=True)


def forward(x: Tensor, smallest: float) -> tuple[Tensor, Tensor]:
    """[n, d], contiguous → the rows divided, and [n]: each divisor, negative where it is the constant."""
    out, divisor = torch.empty_like(x), x.new_empty(len(x))
    arrays = (x.detach().numpy(), out.numpy(), divisor.numpy())
    over_ranges(_forward_ranges, (*arrays, arrays[0].dtype.type(smallest)), len(x), x.numel())
    return out, divisor


def backward(gradient: Tensor, out: Tensor, divisor: Tensor) -> Tensor:
    """The gradient of the rows."""
    found = torch.empty_like(gradient)
    arrays = (gradient.detach().numpy(), out.numpy(), divisor.numpy(), found.numpy())
    over_ranges(_backward_ranges, arrays, len(found), found.numel())
    return found


@_jit
def _forward(x: Any, out: Any, divisor: Any, smallest: Any, first: int, last: int) -> None:
    one = x.dtype.type(1)
    for row in range(first, last):
        source, target = x[row], out[row]
        total = one - one
        for j in range(len(source)):
            total += source[j] * source[j]
        norm = np.sqrt(total)
        # Asked in this way round NaN stays NaN.
        divisor[row] = -smallest if norm < smallest else norm
        inverse = one / (smallest if norm < smallest else norm)
        for j in range(len(source)):
            target[j] = source[j] * inverse


@_jit
def _backward(gradient: Any, out: Any, divisor: Any, found: Any, first: int, last: int) -> None:
    one = out.dtype.type(1)
    for row in range(first, last):
        given, y, target = gradient[row], out[row], found[row]
        along = one - one
        for j in range(len(y)):
            along += given[j] * y[j]
        # Where the divisor is the constant, moving along the row changes the result as any other direction does.
        along = one - one if divisor[row] < 0 else along
        inverse = one / abs(divisor[row])
        for j in range(len(y)):
            target[j] = (given[j] - y[j] * along) * inverse


@_jit
def _forward_ranges(arguments: Any, first: int, last: int, team: Any) -> None:
    in_ranges(_forward, arguments, first, last, team)


@_jit
def _backward_ranges(arguments: Any, first: int, last: int, team: Any) -> None:
    in_ranges(_backward, arguments, first, last, team)
