"""Dropout whose masks are fast on a CPU and never stored: a hash of an element's position and of a key decides about it.

``torch.nn.functional.dropout`` draws one Bernoulli number per element from a slow serial generator. On a CPU this takes a
third to a half of a small transformer's step. It also keeps the mask until the backward pass. Here each call draws one key
from torch's generator, so masks follow ``torch.manual_seed`` and are restored with its state: a repeated, resumed or
recomputed step draws the same masks. Key and position are mixed into a 32-bit word per element (multiplications and shifts
like MurmurHash3's finaliser, Appleby 2011, with the constants of Wellons' lowbias32). The backward pass recomputes the mask,
a block of elements at a time.

Other devices use torch's own dropout, which is fast there.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

Key = tuple[int, int]
"""Two 32-bit numbers that determine a mask."""
_WORDS = 1 << 32
_FIRST, _SECOND, _THIRD = np.uint32(0x9E3779B1), np.uint32(0x7FEB352D), np.uint32(0x846CA68B)
BLOCK = 1 << 16
"""Number of elements in a block: their words stay in the L2 cache."""


def dropout(x: Tensor, p: float, training: bool, rows: Tensor | None = None) -> Tensor:
    """``x`` with each element zeroed with probability p and the others divided by 1 - p; ``x`` itself if not training.

    p is rounded to a multiple of 2⁻³², and the scale is that of the rounded p: the mean is exact. ``rows`` int64 [n]: on a
    CPU, ``x`` [n, d] gets the mask of these rows of a larger table.
    """
    if not training or p <= 0.0:
        return x
    if x.device.type != "cpu" or torch.compiler.is_compiling():
        return F.dropout(x, p, True)
    return _Dropout.apply(x, p, draw_key(), rows)


def draw_key() -> Key:
    """One number from torch's default generator, as two halves."""
    drawn = int(torch.randint(-(2**63), 2**63 - 1, (), dtype=torch.int64).item()) & 0xFFFF_FFFF_FFFF_FFFF
    return drawn & 0xFFFF_FFFF, drawn >> 32


class _Dropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, p, key, rows):  # type: ignore[no-untyped-def]
        ctx.mask = p, key, None if rows is None else rows.numpy()
        return _dropped(x, *ctx.mask)

    @staticmethod
    @once_differentiable
    def backward(ctx, gradient):  # type: ignore[no-untyped-def]
        return _dropped(gradient, *ctx.mask), None, None, None


def _dropped(x: Tensor, p: float, key: Key, rows: np.ndarray | None) -> Tensor:
    threshold, scale = threshold_and_scale(p)
    flat, out = x.reshape(-1), torch.empty_like(x, memory_format=torch.contiguous_format)
    into = out.view(-1)
    for start in range(0, len(flat), BLOCK):
        part = slice(start, min(start + BLOCK, len(flat)))
        places = np.arange(part.start, part.stop)
        if rows is not None:
            places = rows[places // x.shape[1]] * x.shape[1] + places % x.shape[1]
        kept = torch.from_numpy(words(places, key) >= np.uint32(threshold))
        torch.mul(flat[part], scale, out=into[part]).mul_(kept)
    return out


def threshold_and_scale(p: float) -> tuple[int, float]:
    """Elements with words of at least ``threshold`` are kept and multiplied by ``scale``."""
    threshold = min(round(p * _WORDS), _WORDS - 1)
    return threshold, _WORDS / (_WORDS - threshold)


def words(places: np.ndarray, key: Key) -> np.ndarray:
    """The words of the elements at some places, uint32."""
    x = places.astype(np.uint32)
    x *= _FIRST
    x += np.uint32(key[0])
    x ^= x >> np.uint32(16)
    x *= _SECOND
    x ^= np.uint32(key[1])
    x ^= x >> np.uint32(15)
    x *= _THIRD
    x ^= x >> np.uint32(16)
    return x
