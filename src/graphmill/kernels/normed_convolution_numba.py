"""The windows of ``normed_convolution`` for the CPU, compiled: torch's loops are not made for a picture's short rows."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from torch import Tensor

from graphmill.kernels.compiled_math import FAST
from graphmill.kernels.threads import over_ranges

_jit = numba.njit(nogil=True, fastmath=FAST, error_model="numpy", cache=True)


def unfold(picture: Tensor, out: Tensor, height: int, width: int) -> None:
    """[B, H, W] → ``out`` [B, height · width + 1, rows, columns], the last one ones. Both contiguous."""
    arrays = (picture.detach().numpy(), out.numpy())
    over_ranges(len(picture), lambda a, b: _unfold(*arrays, height, width, a, b), out.numel() // 8)


def fold(parts: Tensor, mixed: Tensor, cells: Tensor, out: Tensor, height: int, width: int) -> None:
    """The transpose of :func:`unfold` of ``parts`` + ``mixed`` · ``cells``, into ``out`` [B, H, W].

    ``parts`` and ``cells`` [B, K + 1, rows, columns], ``mixed`` [K + 1, K + 1]. What came from the ones goes nowhere.
    """
    arrays = (parts.detach().numpy(), mixed.detach().numpy(), cells.detach().numpy(), out.numpy())
    over_ranges(len(out), lambda a, b: _fold(*arrays, height, width, a, b), parts.numel())


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
def _fold(parts: Any, mixed: Any, cells: Any, out: Any, height: int, width: int, first: int, last: int) -> None:
    entries, rows, columns = parts.shape[1], parts.shape[2], parts.shape[3]
    line = np.empty(rows * columns, parts.dtype)
    for b in range(first, last):
        gradient, seen = parts[b].reshape(entries, rows * columns), cells[b].reshape(entries, rows * columns)
        picture = out[b]
        picture[:] = 0
        for k in range(height * width):
            i, j = k // width, k % width
            line[:] = gradient[k]
            for other in range(entries):
                weight, cell = mixed[k, other], seen[other]
                for p in range(rows * columns):
                    line[p] += weight * cell[p]
            for r in range(rows):
                target = picture[i + r]
                for c in range(columns):
                    target[j + c] += line[r * columns + c]
