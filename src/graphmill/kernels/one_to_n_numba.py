"""The elementwise part of the 1-N loss for the CPU, compiled: scores are read once and their slopes written over them.

Torch needs seven passes over a block of scores (bias, softplus, two sums over rows, logistic function, target, sums over
columns), softplus alone taking ten times what reading costs, since it does not vectorise. Here there is one, and one
logarithm for many scores: Σ log(1 + e) is log Π (1 + e).
"""

from __future__ import annotations

import math
from typing import Any

import numba
import numpy as np
import torch
from torch import Tensor

from graphmill.kernels.compiled_math import FAST, exp
from graphmill.kernels.threads import over_ranges

_jit = numba.njit(nogil=True, fastmath=FAST, error_model="numpy", cache=True)
_LANES, _TURNS = 32, 16
"""A product in each of so many lanes takes so many factors between 1 and 2: up to 2^16, all together up to 2^512."""
_ROWS = 32
"""Rows whose slopes are added up column by column before the sums of other rows are."""


def slopes_(scores: Tensor, bias: Tensor | None, zero: float, columns: Tensor | None = None) -> Tensor:
    """``scores`` [B, n] becomes σ(s) − zero, s = scores + bias. Returns Σ softplus(s) − zero · s of each row, float64 [B].

    fp32 or float64, rows contiguous. ``columns`` [n] is overwritten by the slopes' sums over rows. No sum depends on the
    number of threads.
    """
    rows, count = scores.shape
    sums = torch.empty(rows, dtype=torch.float64)
    added = scores.new_zeros(0) if bias is None else bias.detach().contiguous()
    parts = -(-rows // _ROWS)
    collected = scores.new_empty(0 if columns is None else parts, count)
    arrays = (scores.detach().numpy(), added.numpy(), sums.numpy(), collected.numpy())
    target = scores.numpy().dtype.type(zero)
    over_ranges(parts, lambda a, b: _parts(*arrays, target, target.dtype.type(1), a, b), scores.numel())
    if columns is not None and not parts:
        columns.zero_()
    elif columns is not None:
        _sum_rows(collected.numpy(), columns.numpy())
    return sums


@_jit
def _sum_rows(parts: Any, out: Any) -> None:
    # A few rows: handing half of them to another thread would take longer.
    out[:] = parts[0]
    for i in range(1, parts.shape[0]):
        for j in range(out.shape[0]):
            out[j] += parts[i, j]


@_jit
def _parts(scores: Any, bias: Any, sums: Any, collected: Any, zero: Any, one: Any, first: int, last: int) -> None:
    rows, columns = scores.shape
    biased, collecting = bias.shape[0] > 0, collected.shape[0] > 0
    nothing = one - one
    product = np.empty(_LANES, scores.dtype)
    piece = _LANES * _TURNS
    for part in range(first, last):
        if collecting:
            collected[part, :] = nothing
        for row in range(part * _ROWS, min((part + 1) * _ROWS, rows)):
            line = scores[row]
            total = 0.0
            for start in range(0, columns, piece):
                stop = min(start + piece, columns)
                width = stop - start
                block = line[start:stop]
                if biased:
                    shift = bias[start:stop]
                    for j in range(width):
                        block[j] += shift[j]
                product[:] = nothing
                loss = nothing
                # Each lane has Π (1 + e) − 1, so that an e far below 1 is not lost.
                for turn in range(width // _LANES):
                    terms = block[turn * _LANES : (turn + 1) * _LANES]
                    for j in range(_LANES):
                        s = terms[j]
                        positive = s > nothing
                        e = exp(nothing - abs(s))
                        loss += (s if positive else nothing) - zero * s
                        product[j] += e + product[j] * e
                        terms[j] = (one if positive else e) / (one + e) - zero
                rest = width - width % _LANES
                for j in range(width - rest):
                    s = block[rest + j]
                    positive = s > nothing
                    e = exp(nothing - abs(s))
                    loss += (s if positive else nothing) - zero * s
                    product[j] += e + product[j] * e
                    block[rest + j] = (one if positive else e) / (one + e) - zero
                whole = 0.0
                for j in range(_LANES):
                    whole += product[j] + whole * product[j]
                total += np.float64(loss) + math.log1p(whole)
                if collecting:
                    sink = collected[part, start:stop]
                    for j in range(width):
                        sink[j] += block[j]
            sums[row] = total
