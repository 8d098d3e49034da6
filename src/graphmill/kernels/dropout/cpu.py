"""Passes with dropout for the CPU, compiled: an element's word is made where it is needed, and nothing is stored.

The words are those of :func:`graphmill.kernels.dropout.words`. All arrays are contiguous, fp32 or float64.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from torch import Tensor

from graphmill.kernels.runtime.compiled_math import FAST
from graphmill.kernels.runtime.jit import jit
from graphmill.kernels.runtime.team import over_ranges
from graphmill.kernels.runtime.words import WORD_CONSTANTS, Key, threshold_and_scale

_jit = jit(nogil=True, fastmath=FAST, error_model="numpy")
_FIRST, _SECOND, _THIRD = WORD_CONSTANTS


def numbers(key: Key, threshold: int, scale: float, like: Any) -> tuple[Any, ...]:
    """What a compiled function needs to know of a mask, in its own types: key, threshold, scale, zero."""
    kind = like.dtype.type
    return np.uint32(key[0]), np.uint32(key[1]), np.uint32(threshold), kind(scale), kind(0)


def mask_numbers(like: Any, p: float, key: Key) -> tuple[Any, ...]:
    """Whether there is dropout at all, and key, threshold and scale: for :func:`graphmill.kernels.runtime.vectors.keep`."""
    return p > 0.0, *numbers(key, *(threshold_and_scale(p) if p > 0.0 else (0, 1.0)), like)[:4]


def mask(out: Tensor, key: Key, threshold: int, scale: float) -> None:
    """``out`` becomes 0 or ``scale``."""
    flat = out.view(-1).numpy()
    known = numbers(key, threshold, scale, flat)
    over_ranges(_mask, (flat, *known), len(flat), len(flat))


def drop(x: Tensor, out: Tensor, key: Key, threshold: int, scale: float) -> None:
    """``out`` = dropout(x)."""
    source, flat = x.detach().view(-1).numpy(), out.view(-1).numpy()
    known = numbers(key, threshold, scale, flat)
    over_ranges(_drop, (source, flat, *known), len(flat), len(flat))


def add_drop(x: Tensor, branch: Tensor, out: Tensor, key: Key, threshold: int, scale: float) -> None:
    """``out`` = x + dropout(branch)."""
    base, source, flat = x.detach().view(-1).numpy(), branch.detach().view(-1).numpy(), out.view(-1).numpy()
    known = numbers(key, threshold, scale, flat)
    over_ranges(_add_drop, (base, source, flat, *known), len(flat), len(flat))


def relu_drop(x: Tensor, out: Tensor, key: Key, threshold: int, scale: float) -> None:
    """``out`` = dropout(ReLU(x))."""
    source, flat = x.detach().view(-1).numpy(), out.view(-1).numpy()
    known = numbers(key, threshold, scale, flat)
    over_ranges(_relu_drop, (source, flat, *known), len(flat), len(flat))


def relu_drop_gradient(gradient: Tensor, result: Tensor, out: Tensor, scale: float) -> None:
    """``out`` = gradient · scale where the result is above 0, else 0."""
    flat = out.view(-1).numpy()
    arrays = gradient.detach().view(-1).numpy(), result.detach().view(-1).numpy(), flat
    known = flat.dtype.type(scale), flat.dtype.type(0)
    over_ranges(_relu_drop_gradient, (*arrays, *known), len(flat), len(flat))


@_jit
def word(place: int, low: Any, high: Any) -> Any:
    """The word of an element, uint32."""
    x = np.uint32(np.uint32(np.uint32(place) * _FIRST) + low)
    x = np.uint32(x ^ (x >> np.uint32(16)))
    x = np.uint32(np.uint32(x * _SECOND) ^ high)
    x = np.uint32(x ^ (x >> np.uint32(15)))
    x = np.uint32(x * _THIRD)
    return np.uint32(x ^ (x >> np.uint32(16)))


# A loop from 0 over a part of the array: where an index might be negative, numba's code for that keeps it from vectorising.


@_jit
def _mask(out: Any, low: Any, high: Any, threshold: Any, scale: Any, zero: Any, first: int, last: int) -> None:
    part = out[first:last]
    for i in range(len(part)):
        part[i] = scale if word(first + i, low, high) >= threshold else zero


@_jit
def _drop(x: Any, out: Any, low: Any, high: Any, threshold: Any, scale: Any, zero: Any, first: int, last: int) -> None:
    source, part = x[first:last], out[first:last]
    for i in range(len(part)):
        part[i] = source[i] * (scale if word(first + i, low, high) >= threshold else zero)


@_jit
def _add_drop(
    base: Any, x: Any, out: Any, low: Any, high: Any, threshold: Any, scale: Any, zero: Any, first: int, last: int
) -> None:
    below, source, part = base[first:last], x[first:last], out[first:last]
    for i in range(len(part)):
        part[i] = below[i] + source[i] * (scale if word(first + i, low, high) >= threshold else zero)


@_jit
def _relu_drop(
    x: Any, out: Any, low: Any, high: Any, threshold: Any, scale: Any, zero: Any, first: int, last: int
) -> None:
    source, part = x[first:last], out[first:last]
    for i in range(len(part)):
        kept = scale if word(first + i, low, high) >= threshold else zero
        part[i] = (zero if source[i] < zero else source[i]) * kept


@_jit
def _relu_drop_gradient(gradient: Any, result: Any, out: Any, scale: Any, zero: Any, first: int, last: int) -> None:
    above, known, part = gradient[first:last], result[first:last], out[first:last]
    for i in range(len(part)):
        part[i] = above[i] * (scale if known[i] > zero else zero)
