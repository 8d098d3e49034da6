"""``hyper_connections`` for the CPU, compiled: a row's streams (n · C numbers) stay in the first cache while they are mixed.

Torch's batched products of n × n matrices cost several passes over the streams, their transposes and copies. All arrays are
contiguous, of one dtype, fp32 or float64: streams [R, n, C], weights [R, n], mixing [R, n, n], rows [R, C].
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import torch
from torch import Tensor

from graphmill.kernels.compiled_math import FAST
from graphmill.kernels.team import in_ranges, over_ranges

_jit = numba.njit(nogil=True, fastmath=FAST, error_model="numpy", cache=True)


def squares(streams: Tensor) -> Tensor:
    """[R]: the sum of all squares of a row."""
    out = streams.new_empty(len(streams))
    _over(_squares_ranges, streams, out)
    return out


def read(streams: Tensor, weights: Tensor) -> Tensor:
    """[R, C]: Σ_s h_s X_s."""
    out = streams.new_empty(len(streams), streams.shape[2])
    _over(_read_ranges, streams, weights, out)
    return out


def read_gradients_(streams: Tensor, weights: Tensor, gradient: Tensor, through: Tensor) -> Tensor:
    """``through`` += h ⊗ gradient [R, C]. Returns the weights' gradient: gradient · X_s."""
    out = torch.empty_like(weights)
    _over(_read_gradients_ranges, streams, weights, gradient, through, out)
    return out


def write(streams: Tensor, mixing: Tensor, weights: Tensor, update: Tensor) -> Tensor:
    """[R, n, C]: H X + p ⊗ y."""
    out = torch.empty_like(streams)
    _over(_write_ranges, streams, mixing, weights, update, out)
    return out


def write_gradients(
    streams: Tensor, mixing: Tensor, weights: Tensor, update: Tensor, gradient: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gradients of the four, of ``gradient`` [R, n, C]."""
    found = tuple(torch.empty_like(t) for t in (streams, mixing, weights, update))
    _over(_write_gradients_ranges, streams, mixing, weights, update, gradient, *found)
    return found[0], found[1], found[2], found[3]


def add_scaled_(into: Tensor, streams: Tensor, factor: Tensor) -> None:
    """``into`` += factor [R] times the row's streams."""
    _over(_add_scaled_ranges, into, streams, factor)


def _over(driver: Any, *tensors: Tensor) -> None:
    over_ranges(driver, tuple(t.detach().numpy() for t in tensors), len(tensors[0]), tensors[0].numel())


@_jit
def _squares(x: Any, out: Any, first: int, last: int) -> None:
    for row in range(first, last):
        total = x.dtype.type(0)
        for s in range(x.shape[1]):
            for c in range(x.shape[2]):
                total += x[row, s, c] * x[row, s, c]
        out[row] = total


@_jit
def _read(x: Any, weights: Any, out: Any, first: int, last: int) -> None:
    for row in range(first, last):
        weight = weights[row, 0]
        for c in range(x.shape[2]):
            out[row, c] = weight * x[row, 0, c]
        for s in range(1, x.shape[1]):
            weight = weights[row, s]
            for c in range(x.shape[2]):
                out[row, c] += weight * x[row, s, c]


@_jit
def _read_gradients(x: Any, weights: Any, gradient: Any, through: Any, out: Any, first: int, last: int) -> None:
    for row in range(first, last):
        for s in range(x.shape[1]):
            weight, total = weights[row, s], x.dtype.type(0)
            for c in range(x.shape[2]):
                g = gradient[row, c]
                total += g * x[row, s, c]
                through[row, s, c] += weight * g
            out[row, s] = total


@_jit
def _at(weights: Any, count: int, place: int) -> Any:
    """A weight, or zero past the last."""
    return weights[min(place, count - 1)] if place < count else weights[0] - weights[0]


@_jit
def _blend(weights: Any, x: Any, row: int, line: Any) -> None:
    """``line`` += Σ_s weights[s] · x[row, s], four streams a pass."""
    count, last = x.shape[1], x.shape[1] - 1
    for s in range(0, count, 4):
        a, b, c, d = weights[s], _at(weights, count, s + 1), _at(weights, count, s + 2), _at(weights, count, s + 3)
        s1, s2, s3 = min(s + 1, last), min(s + 2, last), min(s + 3, last)
        for j in range(x.shape[2]):
            line[j] += (a * x[row, s, j] + b * x[row, s1, j]) + (c * x[row, s2, j] + d * x[row, s3, j])


@_jit
def _write(x: Any, mixing: Any, weights: Any, update: Any, out: Any, first: int, last: int) -> None:
    streams, width = x.shape[1], x.shape[2]
    line = np.empty(width, x.dtype)
    for row in range(first, last):
        for i in range(streams):
            weight = weights[row, i]
            for j in range(width):
                line[j] = weight * update[row, j]
            _blend(mixing[row, i], x, row, line)
            for j in range(width):
                out[row, i, j] = line[j]


@_jit
def _write_gradients(
    x: Any, mixing: Any, weights: Any, update: Any, gradient: Any, into_x: Any, into_mixing: Any, into_weights: Any,
    into_update: Any, first: int, last: int,
) -> None:  # fmt: skip
    streams, width = x.shape[1], x.shape[2]
    end = streams - 1
    nothing = x.dtype.type(0)
    line, column = np.empty(width, x.dtype), np.empty(streams, x.dtype)
    for row in range(first, last):
        for j in range(width):
            line[j] = nothing
        _blend(weights[row], gradient, row, line)
        for j in range(width):
            into_update[row, j] = line[j]
        for s in range(streams):
            for i in range(streams):
                column[i] = mixing[row, i, s]
            for j in range(width):
                line[j] = nothing
            _blend(column, gradient, row, line)
            for j in range(width):
                into_x[row, s, j] = line[j]
        for i in range(streams):
            total = nothing
            for j in range(width):
                total += gradient[row, i, j] * update[row, j]
            into_weights[row, i] = total
            for s in range(0, streams, 4):
                s1, s2, s3 = min(s + 1, end), min(s + 2, end), min(s + 3, end)
                t0, t1, t2, t3 = nothing, nothing, nothing, nothing
                for j in range(width):
                    g = gradient[row, i, j]
                    t0 += g * x[row, s, j]
                    t1 += g * x[row, s1, j]
                    t2 += g * x[row, s2, j]
                    t3 += g * x[row, s3, j]
                # Past the last stream these are its own once more.
                into_mixing[row, i, s3] = t3
                into_mixing[row, i, s2] = t2
                into_mixing[row, i, s1] = t1
                into_mixing[row, i, s] = t0


@_jit
def _add_scaled(into: Any, x: Any, factor: Any, first: int, last: int) -> None:
    for row in range(first, last):
        scale = factor[row]
        for s in range(x.shape[1]):
            for c in range(x.shape[2]):
                into[row, s, c] += scale * x[row, s, c]


@_jit
def _squares_ranges(arguments: Any, first: int, last: int, team: Any) -> None:
    in_ranges(_squares, arguments, first, last, team)


@_jit
def _read_ranges(arguments: Any, first: int, last: int, team: Any) -> None:
    in_ranges(_read, arguments, first, last, team)


@_jit
def _read_gradients_ranges(arguments: Any, first: int, last: int, team: Any) -> None:
    in_ranges(_read_gradients, arguments, first, last, team)


@_jit
def _write_ranges(arguments: Any, first: int, last: int, team: Any) -> None:
    in_ranges(_write, arguments, first, last, team)


@_jit
def _write_gradients_ranges(arguments: Any, first: int, last: int, team: Any) -> None:
    in_ranges(_write_gradients, arguments, first, last, team)


@_jit
def _add_scaled_ranges(arguments: Any, first: int, last: int, team: Any) -> None:
    in_ranges(_add_scaled, arguments, first, last, team)
