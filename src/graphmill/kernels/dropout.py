"""Dropout whose masks are fast on a CPU and never stored: a hash of an element's position and of a key decides about it.

``torch.nn.functional.dropout`` draws one Bernoulli number per element from a slow serial generator. On a CPU this takes a
third to a half of a small transformer's step. It also keeps the mask until the backward pass. Here each call draws one key
from torch's generator, so masks follow ``torch.manual_seed`` and are restored with its state: a repeated, resumed or
recomputed step draws the same masks. Key and position are mixed into a 32-bit word per element (multiplications and shifts
like MurmurHash3's finaliser, Appleby 2011, with the constants of Wellons' lowbias32). Compiled kernels can compute any part
of the mask (``runtime.vectors.keep``), and the backward pass recomputes it, a block of elements at a time.

Other devices use torch's own dropout, which is fast there.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from graphmill.kernels.runtime.words import Key as Key
from graphmill.kernels.runtime.words import threshold_and_scale as threshold_and_scale
from graphmill.kernels.runtime.words import words as words

BLOCK = 1 << 16
"""Number of elements in a block: their words stay in the L2 cache."""


def dropout(x: Tensor, p: float, training: bool) -> Tensor:
    """``x`` with each element zeroed with probability p and the others divided by 1 - p; ``x`` itself if not training.

    p is rounded to a multiple of 2⁻³², and the scale is that of the rounded p: the mean is exact.
    """
    if not training or p <= 0.0:
        return x
    if x.device.type != "cpu" or torch.compiler.is_compiling():
        return F.dropout(x, p, True)
    return _Dropout.apply(x, p, draw_key())


def draw_key() -> Key:
    """One number from torch's default generator, as two halves."""
    drawn = int(torch.randint(-(2**63), 2**63 - 1, (), dtype=torch.int64).item()) & 0xFFFF_FFFF_FFFF_FFFF
    return drawn & 0xFFFF_FFFF, drawn >> 32


class _Dropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, p, key):  # type: ignore[no-untyped-def]
        ctx.p, ctx.key = p, key
        return _dropped(x, p, key)

    @staticmethod
    @once_differentiable
    def backward(ctx, gradient):  # type: ignore[no-untyped-def]
        return _dropped(gradient, ctx.p, ctx.key), None, None


def _dropped(x: Tensor, p: float, key: Key) -> Tensor:
    threshold, scale = threshold_and_scale(p)
    flat, out = x.reshape(-1), torch.empty_like(x, memory_format=torch.contiguous_format)
    into = out.view(-1)
    for start in range(0, len(flat), BLOCK):
        part = slice(start, min(start + BLOCK, len(flat)))
        kept = torch.from_numpy(words(part.start, part.stop, key) >= np.uint32(threshold))
        torch.mul(flat[part], scale, out=into[part]).mul_(kept)
    return out
