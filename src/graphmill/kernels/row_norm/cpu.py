"""``row_norm`` for the CPU, compiled. A row stays in the L1 cache between its norm and its result."""

from __future__ import annotations

from typing import Any

import numpy as np
from torch import Tensor

from graphmill.kernels.runtime.jit import jit_fast
from graphmill.kernels.runtime.team import over_ranges


def forward(x: Tensor, smallest: float, out: Tensor, divisor: Tensor, place: int) -> None:
    """Write the normalised rows of ``x`` [n, d] to ``out`` from column ``place`` on, and ``divisor`` [n], negative if
    it is the constant.

    All arrays are contiguous.
    """
    arrays = (x.detach().numpy(), out.detach().numpy(), divisor.numpy())
    over_ranges(_forward, (*arrays, arrays[0].dtype.type(smallest), place), len(x), x.numel())


def backward(gradient: Tensor, out: Tensor, divisor: Tensor, found: Tensor, place: int) -> None:
    """Write the gradient of the rows to ``found`` [n, d]. Their columns in ``gradient`` and ``out`` begin at ``place``."""
    arrays = (gradient.detach().numpy(), out.numpy(), divisor.numpy(), found.numpy())
    over_ranges(_backward, (*arrays, place), len(found), found.numel())


@jit_fast
def _forward(x: Any, out: Any, divisor: Any, smallest: Any, place: int, first: int, last: int) -> None:
    one, width = x.dtype.type(1), x.shape[1]
    for row in range(first, last):
        source, target = x[row], out[row, place : place + width]
        total = one - one
        for j in range(width):
            total += source[j] * source[j]
        norm = np.sqrt(total)
        # With the comparison in this form, NaN stays NaN.
        divisor[row] = -smallest if norm < smallest else norm
        inverse = one / (smallest if norm < smallest else norm)
        for j in range(width):
            target[j] = source[j] * inverse


@jit_fast
def _backward(gradient: Any, out: Any, divisor: Any, found: Any, place: int, first: int, last: int) -> None:
    one, width = out.dtype.type(1), found.shape[1]
    for row in range(first, last):
        given, y, target = gradient[row, place : place + width], out[row, place : place + width], found[row]
        along = one - one
        for j in range(width):
            along += given[j] * y[j]
        # If the divisor is the constant, the gradient along the row is not removed.
        along = one - one if divisor[row] < 0 else along
        inverse = one / abs(divisor[row])
        for j in range(width):
            target[j] = (given[j] - y[j] * along) * inverse
