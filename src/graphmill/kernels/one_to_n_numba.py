"""The elementwise part of the 1-N loss for the CPU, compiled: scores are read once and their slopes written over them.

Torch needs six passes over a block of scores (bias, softplus, two sums, logistic function, target), softplus alone taking
ten times what reading costs, since it does not vectorise.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import torch
from torch import Tensor

from graphmill.kernels.compiled_math import FAST, exp, log1p
from graphmill.kernels.threads import over_ranges

_jit = numba.njit(nogil=True, fastmath=FAST, error_model="numpy", cache=True)
_PIECE = 512
"""Terms that are added up in the scores' precision before they go into a float64 sum."""


def slopes_(scores: Tensor, bias: Tensor | None, zero: float) -> Tensor:
    """``scores`` [B, n] becomes σ(s) − zero, s = scores + bias. Returns Σ softplus(s) − zero · s of each row, float64 [B].

    fp32 or float64, rows contiguous. A row's sum does not depend on the number of threads.
    """
    rows = len(scores)
    sums = torch.empty(rows, dtype=torch.float64)
    added = scores.new_zeros(0) if bias is None else bias.detach().contiguous()
    arrays = (scores.detach().numpy(), added.numpy(), sums.numpy())
    target = scores.numpy().dtype.type(zero)
    over_ranges(rows, lambda a, b: _rows(*arrays, target, target.dtype.type(1), a, b), scores.numel())
    return sums


@_jit
def _rows(scores: Any, bias: Any, sums: Any, zero: Any, one: Any, first: int, last: int) -> None:
    columns = scores.shape[1]
    biased = bias.shape[0] > 0
    nothing = one - one
    for row in range(first, last):
        line = scores[row]
        total = 0.0
        for start in range(0, columns, _PIECE):
            part = line[start : min(start + _PIECE, columns)]
            if biased:
                shift = bias[start : start + part.shape[0]]
                for j in range(part.shape[0]):
                    part[j] += shift[j]
            loss = nothing
            for j in range(part.shape[0]):
                s = part[j]
                positive = s > nothing
                above = s if positive else nothing
                e = exp(nothing - abs(s))
                loss += above + log1p(e) - zero * s
                part[j] = (one if positive else e) / (one + e) - zero
            total += np.float64(loss)
        sums[row] = total
