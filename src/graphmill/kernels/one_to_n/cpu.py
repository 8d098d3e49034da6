"""The elementwise part of the 1-N loss for the CPU, compiled: scores are read once and their slopes written over them.

Torch needs seven passes over a block of scores (bias, softplus, two sums, logistic function, target, an entity's sum),
softplus alone taking ten times what reading costs, since it does not vectorise. Here there is one, and one logarithm for
many scores: Σ log(1 + e) is log Π (1 + e).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphmill.kernels.runtime.compiled_math import FAST, exp
from graphmill.kernels.runtime.jit import jit
from graphmill.kernels.runtime.team import over_ranges

_jit = jit(nogil=True, fastmath=FAST, error_model="numpy")
_LANES, _TURNS = 32, 16
"""A product in each of so many lanes takes so many factors between 1 and 2: up to 2^16, all together up to 2^512."""
_ROWS = 64
"""Entities whose loss is one sum."""


def slopes_(scores: Tensor, bias: Tensor | None, zero: float, entity_sums: Tensor | None = None) -> Tensor:
    """``scores`` [n, B] becomes σ(s) − zero, s = scores + bias of the row. Returns sums of softplus(s) − zero · s, float64.

    fp32 or float64, rows contiguous. The sums are of 64 rows each. ``entity_sums`` [n] is overwritten by the slopes' sums
    over a row. No sum depends on the number of threads.
    """
    parts = -(-len(scores) // _ROWS)
    sums = torch.empty(parts, dtype=torch.float64)
    added = scores.new_zeros(0) if bias is None else bias.detach().contiguous()
    wanted = scores.new_zeros(0) if entity_sums is None else entity_sums
    arrays = (scores.detach().numpy(), added.numpy(), sums.numpy(), wanted.detach().numpy())
    target = scores.numpy().dtype.type(zero)
    over_ranges(_parts, (*arrays, target, target.dtype.type(1)), parts, scores.numel())
    return sums


@_jit
def _parts(scores: Any, bias: Any, sums: Any, wanted: Any, zero: Any, one: Any, first: int, last: int) -> None:
    count, batch = scores.shape
    nothing = one - one
    # Each lane has Π (1 + e) − 1, so that an e far below 1 is not lost.
    product = np.zeros(_LANES, scores.dtype)
    for part in range(first, last):
        total, turns, loss = 0.0, 0, nothing
        for row in range(part * _ROWS, min((part + 1) * _ROWS, count)):
            line = scores[row]
            shift = bias[row] if bias.shape[0] > 0 else nothing
            added = nothing
            for start in range(0, batch, _LANES):
                if turns == _TURNS:
                    total += np.float64(loss) + _logarithm(product)
                    loss, turns = nothing, 0
                turns += 1
                terms = line[start : min(start + _LANES, batch)]
                if terms.shape[0] == _LANES:  # a loop of known length is one without a rest
                    for j in range(_LANES):
                        terms[j], product[j], term = _one(terms[j] + shift, product[j], zero, one)
                        loss, added = loss + term, added + terms[j]
                else:
                    for j in range(terms.shape[0]):
                        terms[j], product[j], term = _one(terms[j] + shift, product[j], zero, one)
                        loss, added = loss + term, added + terms[j]
            if wanted.shape[0] > 0:
                wanted[row] = added
        sums[part] = total + np.float64(loss) + _logarithm(product)


@_jit
def _one(s: Any, product: Any, zero: Any, one: Any) -> Any:
    """A score → its slope, the lane's product with its factor, and its loss but for the logarithm."""
    nothing = one - one
    positive = s > nothing
    e = exp(nothing - abs(s))
    slope = (one if positive else e) / (one + e) - zero
    return slope, product + (e + product * e), (s if positive else nothing) - zero * s


@_jit
def _logarithm(product: Any) -> float:
    """Σ log(1 + e) of the lanes, which then begin anew."""
    whole = 0.0
    for j in range(_LANES):
        whole += product[j] + whole * product[j]
        product[j] = 0
    return math.log1p(whole)
