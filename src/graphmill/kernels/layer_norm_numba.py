"""``layer_norm`` for the CPU, compiled. A row stays in the first cache between its mean and its result."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import torch
from torch import Tensor

from graphmill.kernels.compiled_math import FAST
from graphmill.kernels.team import in_ranges, over_ranges
from graphmill.kernels.vectors import (
    LANES,
    address,
    first_of,
    hold,
    like,
    load,
    load_first,
    padded,
    spread,
    store,
    store_first,
    total,
)

_jit = numba.njit(nogil=True, fastmath=FAST, error_model="numpy", cache=True)
ROWS = 256
"""Rows whose part of the gradients of γ and β is one sum, so that these do not depend on the number of threads."""


def forward(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """Contiguous [..., d] → result, and [rows, 2]: mean and 1 / √(variance + ε)."""
    rows = x.numel() // x.shape[-1]
    out, statistics = torch.empty_like(x), x.new_empty(rows, 2)
    arrays = [t.detach().view(-1).numpy() for t in (x, out, weight, bias, statistics)]
    over_ranges(_forward_ranges, (*arrays, arrays[0].dtype.type(eps)), -(-rows // ROWS), x.numel())
    return out, statistics


def backward(
    gradient: Tensor, x: Tensor, weight: Tensor, statistics: Tensor, around: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of x, γ and β. ``around``, contiguous, is added to that of x: what reached it by another way."""
    width = x.shape[-1]
    parts = -(-(x.numel() // width) // ROWS)
    out, sums = torch.empty_like(x), x.new_zeros(2, parts, padded(width))
    beside = x.new_empty(0) if around is None else around
    arrays = [t.detach().view(-1).numpy() for t in (gradient, x, beside, out, weight, statistics, *sums)]
    over_ranges(_backward_ranges, tuple(arrays), parts, x.numel())
    into_weight, into_bias = sums.sum(1)[:, :width]
    return out, into_weight, into_bias


@_jit
def normalise(line: Any, width: int, weight: Any, bias: Any, eps: Any, out: Any, to: int) -> Any:
    """One row, ``line``, zero from ``width`` up to a whole vector. Returns its mean and 1 / √(variance + ε)."""
    one = like(eps, 1)
    nothing, inverse = spread(like(eps, 0)), one / like(eps, width)
    added = nothing
    for c in range(0, width, LANES):
        added += load(line, c)
    mean = total(added) * inverse
    centre, added = spread(mean), nothing
    for c in range(0, width, LANES):
        apart = first_of(load(line, c) - centre, width - c, nothing)
        added += apart * apart
    scale = one / np.sqrt(total(added) * inverse + eps)
    by = spread(scale)
    for c in range(0, width, LANES):
        done = (load(line, c) - centre) * by * load_first(weight, c, width - c) + load_first(bias, c, width - c)
        store_first(out, to + c, done, width - c)
    return mean, scale


@_jit
def normalise_back(
    gradient: Any, x: Any, at: int, width: int, weight: Any, mean: Any, scale: Any, line: Any, into_weight: Any,
    into_bias: Any, own: int,
) -> None:  # fmt: skip
    """Backward of the row at ``at``: ``line`` becomes (γ g − mean(γ g) − x̂ mean(γ g x̂)) / σ, x̂ = (x − mean) / σ.

    The sums of γ and β are at ``own``; a row of theirs has whole vectors.
    """
    inverse, centre, by = like(scale, 1) / like(scale, width), spread(mean), spread(scale)
    direct = spread(like(scale, 0))
    along = direct
    for c in range(0, width, LANES):
        g = load_first(gradient, at + c, width - c)
        product = g * ((load_first(x, at + c, width - c) - centre) * by)
        store(into_weight, own + c, load(into_weight, own + c) + product)
        store(into_bias, own + c, load(into_bias, own + c) + g)
        factor = load_first(weight, c, width - c)
        direct += g * factor
        along += product * factor
    straight, leaning = spread(total(direct) * inverse), spread(total(along) * inverse)
    for c in range(0, width, LANES):
        g = load_first(gradient, at + c, width - c) * load_first(weight, c, width - c)
        normed = (load_first(x, at + c, width - c) - centre) * by
        store(line, c, by * (g - straight - normed * leaning))


@_jit
def _forward(x: Any, out: Any, weight: Any, bias: Any, statistics: Any, eps: Any, first: int, last: int) -> None:
    width, rows = len(weight), len(x) // len(weight)
    buffer = np.empty(padded(width), x.dtype)
    line, source, to, gamma, beta = address(buffer), address(x), address(out), address(weight), address(bias)
    for row in range(first * ROWS, min(last * ROWS, rows)):
        at = row * width
        for c in range(0, width, LANES):
            store(line, c, load_first(source, at + c, width - c))
        statistics[2 * row], statistics[2 * row + 1] = normalise(line, width, gamma, beta, eps, to, at)
    hold(buffer)


@_jit
def _backward(
    gradient: Any, x: Any, around: Any, out: Any, weight: Any, statistics: Any, into_weight: Any, into_bias: Any,
    first: int, last: int,
) -> None:  # fmt: skip
    width, adding = len(weight), len(around) > 0
    rows = len(x) // width
    buffer = np.empty(padded(width), x.dtype)
    line, above, source, beside = address(buffer), address(gradient), address(x), address(around)
    to, gamma, of_gamma, of_beta = address(out), address(weight), address(into_weight), address(into_bias)
    for part in range(first, last):
        own = part * len(buffer)
        for row in range(part * ROWS, min((part + 1) * ROWS, rows)):
            at, mean, scale = row * width, statistics[2 * row], statistics[2 * row + 1]
            normalise_back(above, source, at, width, gamma, mean, scale, line, of_gamma, of_beta, own)
            for c in range(0, width, LANES):
                found = load(line, c)
                if adding:
                    found += load_first(beside, at + c, width - c)
                store_first(to, at + c, found, width - c)
    hold(buffer)


@_jit
def _forward_ranges(arguments: Any, first: int, last: int, team: Any) -> None:
    in_ranges(_forward, arguments, first, last, team)


@_jit
def _backward_ranges(arguments: Any, first: int, last: int, team: Any) -> None:
    in_ranges(_backward, arguments, first, last, team)
