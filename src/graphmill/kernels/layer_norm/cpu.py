"""``layer_norm`` for the CPU, compiled. A row stays in the first cache between its mean and its result."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphmill.kernels.runtime.compiled_math import FAST
from graphmill.kernels.runtime.jit import jit
from graphmill.kernels.runtime.team import over_ranges
from graphmill.kernels.runtime.vector_math import first_of, total
from graphmill.kernels.runtime.vectors import (
    LANES,
    address,
    hold,
    like,
    load,
    load_first,
    padded,
    spread,
    store,
    store_first,
)

_jit = jit(nogil=True, fastmath=FAST, error_model="numpy")
ROWS = 256
"""Rows whose part of the gradients of γ and β is one sum, so that these do not depend on the number of threads."""


def forward(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """Contiguous [..., d] → result, and [rows, 2]: mean and 1 / √(variance + ε)."""
    rows = x.numel() // x.shape[-1]
    out, statistics = torch.empty_like(x), x.new_empty(rows, 2)
    arrays = [t.detach().view(-1).numpy() for t in (x, out, weight, bias, statistics)]
    over_ranges(_forward, (*arrays, arrays[0].dtype.type(eps)), -(-rows // ROWS), x.numel())
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
    over_ranges(_backward, tuple(arrays), parts, x.numel())
    into_weight, into_bias = sums.sum(1)[:, :width]
    return out, into_weight, into_bias


# A strip is at most sixteen columns of a row. The strips of a row are whole vectors, and one is what is left: its body is a
# function, which LLVM makes twice, once for a count of sixteen, in which nothing asks how many columns there are.


@_jit
def _squares(line: Any, c: int, count: int, centre: Any, nothing: Any) -> Any:
    apart = first_of(load(line, c) - centre, count, nothing)
    return apart * apart


@_jit
def _scaled(line: Any, c: int, count: int, centre: Any, by: Any, weight: Any, bias: Any, out: Any, to: int) -> None:
    done = (load(line, c) - centre) * by * load_first(weight, c, count) + load_first(bias, c, count)
    store_first(out, to + c, done, count)


@_jit
def normalise(line: Any, width: int, weight: Any, bias: Any, eps: Any, out: Any, to: int) -> Any:
    """One row, ``line``, zero from ``width`` up to a whole vector. Returns its mean and 1 / √(variance + ε)."""
    one, whole = like(eps, 1), width - width % LANES
    nothing, inverse = spread(like(eps, 0)), one / like(eps, width)
    added = nothing
    for c in range(0, width, LANES):
        added += load(line, c)
    mean = total(added) * inverse
    centre, added = spread(mean), nothing
    for c in range(0, whole, LANES):
        added += _squares(line, c, LANES, centre, nothing)
    if whole < width:
        added += _squares(line, whole, width - whole, centre, nothing)
    scale = one / np.sqrt(total(added) * inverse + eps)
    by = spread(scale)
    for c in range(0, whole, LANES):
        _scaled(line, c, LANES, centre, by, weight, bias, out, to)
    if whole < width:
        _scaled(line, whole, width - whole, centre, by, weight, bias, out, to)
    return mean, scale


@_jit
def _sums(gradient: Any, x: Any, at: int, c: int, count: int, norm: Any, into: Any) -> Any:
    (weight, centre, by), (into_weight, into_bias, own) = norm, into
    g = load_first(gradient, at + c, count)
    product = g * ((load_first(x, at + c, count) - centre) * by)
    store(into_weight, own + c, load(into_weight, own + c) + product)
    store(into_bias, own + c, load(into_bias, own + c) + g)
    factor = load_first(weight, c, count)
    return g * factor, product * factor


@_jit
def _back(
    gradient: Any, x: Any, at: int, c: int, count: int, norm: Any, straight: Any, leaning: Any, line: Any
) -> None:
    weight, centre, by = norm
    g = load_first(gradient, at + c, count) * load_first(weight, c, count)
    normed = (load_first(x, at + c, count) - centre) * by
    store(line, c, by * (g - straight - normed * leaning))


@_jit
def normalise_back(
    gradient: Any, x: Any, at: int, width: int, weight: Any, mean: Any, scale: Any, line: Any, into: Any
) -> None:
    """Backward of the row at ``at``: ``line`` becomes (γ g − mean(γ g) − x̂ mean(γ g x̂)) / σ, x̂ = (x − mean) / σ.

    ``into``: addresses of the sums of γ and β, and the place there; a row of theirs has whole vectors.
    """
    inverse, centre, by = like(scale, 1) / like(scale, width), spread(mean), spread(scale)
    whole, direct = width - width % LANES, spread(like(scale, 0))
    along = direct
    for c in range(0, whole, LANES):
        a, b = _sums(gradient, x, at, c, LANES, (weight, centre, by), into)
        direct += a
        along += b
    if whole < width:
        a, b = _sums(gradient, x, at, whole, width - whole, (weight, centre, by), into)
        direct += a
        along += b
    straight, leaning = spread(total(direct) * inverse), spread(total(along) * inverse)
    for c in range(0, whole, LANES):
        _back(gradient, x, at, c, LANES, (weight, centre, by), straight, leaning, line)
    if whole < width:
        _back(gradient, x, at, whole, width - whole, (weight, centre, by), straight, leaning, line)


@_jit
def _forward(x: Any, out: Any, weight: Any, bias: Any, statistics: Any, eps: Any, first: int, last: int) -> None:
    width, rows = len(weight), len(x) // len(weight)
    whole = width - width % LANES
    buffer = np.empty(padded(width), x.dtype)
    line, source, to, gamma, beta = address(buffer), address(x), address(out), address(weight), address(bias)
    for row in range(first * ROWS, min(last * ROWS, rows)):
        at = row * width
        for c in range(0, whole, LANES):
            store(line, c, load(source, at + c))
        if whole < width:
            store(line, whole, load_first(source, at + whole, width - whole))
        statistics[2 * row], statistics[2 * row + 1] = normalise(line, width, gamma, beta, eps, to, at)
    hold(buffer)


@_jit
def _hand_on(line: Any, c: int, count: int, adding: bool, beside: Any, to: Any, at: int) -> None:
    found = load(line, c)
    if adding:
        found += load_first(beside, at + c, count)
    store_first(to, at + c, found, count)


@_jit
def _backward(
    gradient: Any, x: Any, around: Any, out: Any, weight: Any, statistics: Any, into_weight: Any, into_bias: Any,
    first: int, last: int,
) -> None:  # fmt: skip
    width, adding = len(weight), len(around) > 0
    rows, whole = len(x) // width, width - width % LANES
    buffer = np.empty(padded(width), x.dtype)
    line, above, source, beside = address(buffer), address(gradient), address(x), address(around)
    to, gamma, of_gamma, of_beta = address(out), address(weight), address(into_weight), address(into_bias)
    for part in range(first, last):
        own = part * len(buffer)
        for row in range(part * ROWS, min((part + 1) * ROWS, rows)):
            at, mean, scale = row * width, statistics[2 * row], statistics[2 * row + 1]
            normalise_back(above, source, at, width, gamma, mean, scale, line, (of_gamma, of_beta, own))
            for c in range(0, whole, LANES):
                _hand_on(line, c, LANES, adding, beside, to, at)
            if whole < width:
                _hand_on(line, whole, width - whole, adding, beside, to, at)
    hold(buffer)
