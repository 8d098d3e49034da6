"""Passes of ``sublayers`` for the CPU, compiled: what happens to a row between two products, while it is in the first cache.

All tables are contiguous [R, d], fp32 or float64. Dropout's words are those of ``dropout.words``, an element's place being
its place in the table.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from graphmill.kernels.dropout.cpu import mask_numbers
from graphmill.kernels.layer_norm.cpu import ROWS, normalise, normalise_back
from graphmill.kernels.runtime.compiled_math import FAST
from graphmill.kernels.runtime.jit import jit
from graphmill.kernels.runtime.team import over_ranges
from graphmill.kernels.runtime.vector_math import keep, larger, where_positive
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
from graphmill.kernels.runtime.words import Key, threshold_and_scale

_jit = jit(nogil=True, fastmath=FAST, error_model="numpy")


class Gradients(NamedTuple):
    """Gradients of what :func:`finish_` took: ``total`` is also the residual's."""

    total: Tensor
    branch: Tensor
    bias: Tensor
    gamma: Tensor | None
    beta: Tensor | None


def finish_(
    product: Tensor,
    bias: Tensor,
    base: Tensor | None,
    gamma: Tensor | None,
    beta: Tensor | None,
    eps: float,
    p: float = 0.0,
    key: Key = (0, 0),
) -> tuple[Tensor, Tensor | None]:
    """``product`` becomes t = base + dropout(product + bias). Returns LN(t), or t itself, and LN's statistics [R, 2]."""
    rows, width = product.shape
    out, statistics = product, None
    if gamma is not None:
        out, statistics = torch.empty_like(product), product.new_empty(rows, 2)
    flat = _flat(product, bias, base, gamma, beta, out, statistics)
    more = (*flat, flat[0].dtype.type(eps), *mask_numbers(flat[0], p, key))
    over_ranges(_finish, more, -(-rows // ROWS), rows * width)
    return out, statistics


def unfinish(
    gradient: Tensor,
    total: Tensor | None,
    gamma: Tensor | None,
    statistics: Tensor | None,
    p: float = 0.0,
    key: Key = (0, 0),
) -> Gradients:
    """Backward of :func:`finish_`. ``total``: what it left in ``product``, needed where there is a norm only."""
    rows, width = gradient.shape
    parts = -(-rows // ROWS)
    into_total = gradient if gamma is None else torch.empty_like(gradient)
    branch = into_total if p <= 0.0 else torch.empty_like(gradient)
    sums = gradient.new_zeros(3, parts, padded(width))
    flat = _flat(gradient, total, into_total, branch, gamma, statistics, *sums)
    over_ranges(_unfinish, (*flat, width, *mask_numbers(flat[0], p, key)), parts, rows * width)
    into_bias, into_gamma, into_beta = sums.sum(1)[:, :width]
    if gamma is None:
        return Gradients(into_total, branch, into_bias, None, None)
    return Gradients(into_total, branch, into_bias, into_gamma, into_beta)


def relu_(product: Tensor, bias: Tensor, p: float = 0.0, key: Key = (0, 0)) -> None:
    """``product`` becomes dropout(relu(product + bias))."""
    rows, width = product.shape
    flat = _flat(product, bias)
    over_ranges(_relu, (*flat, *mask_numbers(flat[0], p, key)), rows, rows * width)


def relu_gradient_(gradient: Tensor, result: Tensor, p: float = 0.0) -> Tensor:
    """``gradient`` becomes that of the product, from that of ``result``. Returns the bias's, [d]."""
    rows, width = gradient.shape
    parts = -(-rows // ROWS)
    sums = gradient.new_zeros(parts, padded(width))
    flat = _flat(gradient, result, sums)
    scale = flat[0].dtype.type(threshold_and_scale(p)[1] if p > 0.0 else 1.0)
    over_ranges(_relu_gradient, (*flat, width, scale), parts, rows * width)
    return sums.sum(0)[:width]


def _flat(first: Tensor, *others: Tensor | None) -> list[np.ndarray]:
    """As flat arrays, an empty one for None."""
    nothing = first.new_empty(0)
    return [(nothing if t is None else t).detach().view(-1).numpy() for t in (first, *others)]


# The body of each loop over a row's strips is a function: see layer_norm/cpu.py.


@_jit
def _finish_strip(
    table: Any, at: int, c: int, count: int, more: Any, under: Any, adding: bool, line: Any, mask: Any
) -> None:
    dropping, low, high, threshold, kept = mask
    x = load_first(table, at + c, count) + load_first(more, c, count)
    if dropping:
        x = keep(x, at + c, low, high, threshold, kept)
    if adding:
        x += load_first(under, at + c, count)
    store_first(table, at + c, x, count)
    store(line, c, x)


@_jit
def _finish(arguments: Any, first: int, last: int) -> None:
    product, bias, base, gamma, beta, out, statistics, eps, dropping, low, high, threshold, kept = arguments
    width, adding, norming = len(bias), len(base) > 0, len(gamma) > 0
    rows, whole = len(product) // width, width - width % LANES
    buffer = np.empty(padded(width), product.dtype)
    line, table, to = address(buffer), address(product), address(out)
    more, under, factor, shift = address(bias), address(base), address(gamma), address(beta)
    for row in range(first * ROWS, min(last * ROWS, rows)):
        at = row * width
        for c in range(0, whole, LANES):
            _finish_strip(table, at, c, LANES, more, under, adding, line, (dropping, low, high, threshold, kept))
        if whole < width:
            count = width - whole
            _finish_strip(table, at, whole, count, more, under, adding, line, (dropping, low, high, threshold, kept))
        if norming:
            statistics[2 * row], statistics[2 * row + 1] = normalise(line, width, factor, shift, eps, to, at)
    hold(buffer)


@_jit
def _unfinish_strip(above: Any, at: int, c: int, count: int, norming: bool, line: Any, into: Any, mask: Any) -> None:
    (whole, part_of, of_bias, own), (dropping, low, high, threshold, kept) = into, mask
    if norming:
        x = load(line, c)
        store_first(whole, at + c, x, count)
    else:
        x = load_first(above, at + c, count)
    if dropping:
        x = keep(x, at + c, low, high, threshold, kept)
        store_first(part_of, at + c, x, count)
    # Past the last column the sums are never read.
    store(of_bias, own + c, load(of_bias, own + c) + x)


@_jit
def _unfinish(arguments: Any, first: int, last: int) -> None:
    (
        gradient, total, into_total, branch, gamma, statistics, into_bias, into_gamma, into_beta, width, dropping, low,
        high, threshold, kept
    ) = arguments  # fmt: skip
    norming, rows, whole = len(gamma) > 0, len(gradient) // width, width - width % LANES
    buffer = np.empty(padded(width), gradient.dtype)
    line, above, source, factor = address(buffer), address(gradient), address(total), address(gamma)
    to, part_of, of_bias = address(into_total), address(branch), address(into_bias)
    of_gamma, of_beta = address(into_gamma), address(into_beta)
    for part in range(first, last):
        own = part * len(buffer)
        for row in range(part * ROWS, min((part + 1) * ROWS, rows)):
            at = row * width
            if norming:
                mean, scale = statistics[2 * row], statistics[2 * row + 1]
                normalise_back(above, source, at, width, factor, mean, scale, line, (of_gamma, of_beta, own))
            for c in range(0, whole, LANES):
                _unfinish_strip(
                    above,
                    at,
                    c,
                    LANES,
                    norming,
                    line,
                    (to, part_of, of_bias, own),
                    (dropping, low, high, threshold, kept),
                )
            if whole < width:
                _unfinish_strip(
                    above,
                    at,
                    whole,
                    width - whole,
                    norming,
                    line,
                    (to, part_of, of_bias, own),
                    (dropping, low, high, threshold, kept),
                )
    hold(buffer)


@_jit
def _relu_strip(table: Any, at: int, c: int, count: int, more: Any, nothing: Any, mask: Any) -> None:
    dropping, low, high, threshold, kept = mask
    # NaN stays NaN: the second one is taken where the first is not larger.
    y = larger(nothing, load_first(table, at + c, count) + load_first(more, c, count))
    if dropping:
        y = keep(y, at + c, low, high, threshold, kept)
    store_first(table, at + c, y, count)


@_jit
def _relu(
    x: Any, bias: Any, dropping: bool, low: Any, high: Any, threshold: Any, kept: Any, first: int, last: int
) -> None:
    width, nothing = len(bias), spread(like(kept, 0))
    table, more, whole = address(x), address(bias), width - width % LANES
    for row in range(first, last):
        at = row * width
        for c in range(0, whole, LANES):
            _relu_strip(table, at, c, LANES, more, nothing, (dropping, low, high, threshold, kept))
        if whole < width:
            _relu_strip(table, at, whole, width - whole, more, nothing, (dropping, low, high, threshold, kept))


@_jit
def _slope_strip(
    table: Any, known: Any, at: int, c: int, count: int, by: Any, nothing: Any, of_bias: Any, own: int
) -> None:
    g = where_positive(load_first(known, at + c, count), load_first(table, at + c, count) * by, nothing)
    store_first(table, at + c, g, count)
    store(of_bias, own + c, load(of_bias, own + c) + g)


@_jit
def _relu_gradient(gradient: Any, result: Any, into_bias: Any, width: int, scale: Any, first: int, last: int) -> None:
    by, nothing, rows = spread(scale), spread(like(scale, 0)), len(gradient) // width
    table, known, of_bias, whole = address(gradient), address(result), address(into_bias), width - width % LANES
    for part in range(first, last):
        own = part * padded(width)
        for row in range(part * ROWS, min((part + 1) * ROWS, rows)):
            at = row * width
            for c in range(0, whole, LANES):
                _slope_strip(table, known, at, c, LANES, by, nothing, of_bias, own)
            if whole < width:
                _slope_strip(table, known, at, whole, width - whole, by, nothing, of_bias, own)
