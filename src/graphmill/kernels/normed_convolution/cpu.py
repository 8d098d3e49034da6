"""``normed_convolution`` for the CPU, compiled: windows, and the gradients of a row's few filters and of its windows.

Torch's loops are not made for a picture's short rows. Going back, the maps' gradient is rectified as it is read, four
channels at a time, and used for both products; it is never written. Channels that dropout silenced are passed over.
(Forward, torch's batched product and ReLU are faster than a compiled loop.)
"""

from __future__ import annotations

from typing import Any

import numpy as np
from torch import Tensor

from graphmill.kernels.runtime.compiled_math import FAST
from graphmill.kernels.runtime.jit import jit
from graphmill.kernels.runtime.team import over_ranges

_jit = jit(nogil=True, fastmath=FAST, error_model="numpy")
_CHANNELS = 4
"""Channels whose gradient is read at a time; the loops name each of them."""


def unfold(picture: Tensor, out: Tensor, height: int, width: int) -> None:
    """[B, H, W] → ``out`` [B, height · width + 1, rows, columns], the last one ones. Both contiguous."""
    arrays = (picture.detach().numpy(), out.numpy())
    over_ranges(_unfold, (*arrays, height, width), len(picture), out.numel() // 8)


def fold(parts: Tensor, mixed: Tensor, cells: Tensor, out: Tensor, height: int, width: int) -> None:
    """The transpose of :func:`unfold` of ``parts`` + ``mixed`` · ``cells``, into ``out`` [B, H, W].

    ``parts`` and ``cells`` [B, K + 1, rows, columns], ``mixed`` [K + 1, K + 1]. What came from the ones goes nowhere.
    """
    arrays = (parts.detach().numpy(), mixed.detach().numpy(), cells.detach().numpy(), out.numpy())
    over_ranges(_fold, (*arrays, height, width), len(out), parts.numel())


def rectified_gradients(
    gradient: Tensor, maps: Tensor, filters: Tensor, cells: Tensor, into_filters: Tensor, into_cells: Tensor
) -> None:
    """The maps' gradient and the maps [B, C · P], filters [B, C, E], cells [B, E, P] → the two gradients, contiguous."""
    shape = into_filters.shape[0], into_filters.shape[1], into_cells.shape[2]
    arrays = [t.detach().contiguous() for t in (gradient.view(shape), maps.view(shape), filters, cells)]
    views = tuple(t.numpy() for t in (*arrays, into_filters, into_cells))
    over_ranges(_rectified_gradients, views, len(maps), maps.numel())


@_jit
def _unfold(picture: Any, out: Any, height: int, width: int, first: int, last: int) -> None:
    rows, columns = out.shape[2], out.shape[3]
    for b in range(first, last):
        for k in range(height * width):
            i, j = k // width, k % width
            for r in range(rows):
                source, target = picture[b, i + r], out[b, k, r]
                for c in range(columns):
                    target[c] = source[j + c]
        ones = out[b, height * width]
        for r in range(rows):
            for c in range(columns):
                ones[r, c] = 1


@_jit
def _rectified_gradients(
    gradient: Any, maps: Any, filters: Any, cells: Any, into_filters: Any, into_cells: Any, first: int, last: int
) -> None:
    channels, entries, positions = filters.shape[1], filters.shape[2], cells.shape[2]
    nothing = np.zeros(1, maps.dtype)[0]
    lines = np.empty((_CHANNELS, positions), maps.dtype)
    chosen = np.empty(channels, np.int64)
    for b in range(first, last):
        found = 0
        for c in range(channels):
            if _silent(filters, b, c):
                for k in range(entries):
                    into_filters[b, c, k] = nothing
            else:
                chosen[found] = c
                found += 1
        for k in range(entries):
            for p in range(positions):
                into_cells[b, k, p] = nothing
        for start in range(0, found, _CHANNELS):
            count = min(_CHANNELS, found - start)
            for i in range(_CHANNELS):
                c = chosen[min(start + i, found - 1)]
                for p in range(positions):
                    seen = maps[b, c, p] > nothing if i < count else False
                    lines[i, p] = gradient[b, c, p] if seen else nothing
            # Past the last channel there are lines of zeros, whose weights do not matter.
            c0, c1 = chosen[start], chosen[min(start + 1, found - 1)]
            c2, c3 = chosen[min(start + 2, found - 1)], chosen[min(start + 3, found - 1)]
            for k in range(entries):
                w0, w1, w2, w3 = filters[b, c0, k], filters[b, c1, k], filters[b, c2, k], filters[b, c3, k]
                s0, s1, s2, s3 = nothing, nothing, nothing, nothing
                for p in range(positions):
                    x = cells[b, k, p]
                    g0, g1, g2, g3 = lines[0, p], lines[1, p], lines[2, p], lines[3, p]
                    s0 += g0 * x
                    s1 += g1 * x
                    s2 += g2 * x
                    s3 += g3 * x
                    into_cells[b, k, p] += (w0 * g0 + w1 * g1) + (w2 * g2 + w3 * g3)
                into_filters[b, c0, k] = s0
                if count > 1:
                    into_filters[b, c1, k] = s1
                if count > 2:
                    into_filters[b, c2, k] = s2
                if count > 3:
                    into_filters[b, c3, k] = s3


@_jit
def _silent(filters: Any, b: int, c: int) -> bool:
    seen = False
    for k in range(filters.shape[2]):
        seen |= filters[b, c, k] != 0
    return not seen


@_jit
def _mix(weights: Any, i: int, cells: Any, b: int, line: Any) -> None:
    """``line`` [P] += weights [i] · cells [b], five entries a pass. Indices and not rows: a view costs as much as a loop."""
    entries, positions = cells.shape[1], cells.shape[2]
    last = entries - 1
    nothing = np.zeros(1, line.dtype)[0]
    for k in range(0, entries, 5):
        k1, k2, k3, k4 = min(k + 1, last), min(k + 2, last), min(k + 3, last), min(k + 4, last)
        w0 = weights[i, k]
        w1 = weights[i, k1] if k + 1 <= last else nothing
        w2 = weights[i, k2] if k + 2 <= last else nothing
        w3 = weights[i, k3] if k + 3 <= last else nothing
        w4 = weights[i, k4] if k + 4 <= last else nothing
        for p in range(positions):
            found = (w0 * cells[b, k, p] + w1 * cells[b, k1, p]) + (w2 * cells[b, k2, p] + w3 * cells[b, k3, p])
            line[p] += found + w4 * cells[b, k4, p]


@_jit
def _fold(parts: Any, mixed: Any, cells: Any, out: Any, height: int, width: int, first: int, last: int) -> None:
    entries, rows, columns = parts.shape[1], parts.shape[2], parts.shape[3]
    positions = rows * columns
    gradient, seen = parts.reshape(len(parts), entries, positions), cells.reshape(len(parts), entries, positions)
    line = np.empty(positions, parts.dtype)
    for b in range(first, last):
        out[b] = 0
        for k in range(height * width):
            i, j = k // width, k % width
            for p in range(positions):
                line[p] = gradient[b, k, p]
            _mix(mixed, k, seen, b, line)
            for r in range(rows):
                for c in range(columns):
                    out[b, i + r, j + c] += line[r * columns + c]
