"""The products of ``translation`` for the CPU, compiled: an edge reads its two rows and writes one number."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphmill.kernels.runtime.compiled_math import FAST
from graphmill.kernels.runtime.jit import jit
from graphmill.kernels.runtime.team import over_ranges

_jit = jit(nogil=True, fastmath=FAST, error_model="numpy")


def edge_dots(left: Tensor, right: Tensor, head: Tensor, tail: Tensor) -> Tensor:
    """[E]: left[head_e] · right[tail_e]; ``left`` [m, k], ``right`` [n, k] fp32 or float64, ``head``, ``tail`` int64 [E]."""
    out = torch.empty(len(head), dtype=left.dtype)
    arrays = (*(t.detach().contiguous().numpy() for t in (left, right, head, tail)), out.numpy())
    over_ranges(_dots, arrays, len(head), len(head) * left.shape[1])
    return out


@_jit
def _dots(left: Any, right: Any, head: Any, tail: Any, out: Any, first: int, last: int) -> None:
    width = left.shape[1]
    for e in range(first, last):
        a, b = left[np.uint64(head[e])], right[np.uint64(tail[e])]
        total = a[0] - a[0]
        for j in range(width):
            total += a[j] * b[j]
        out[e] = total
