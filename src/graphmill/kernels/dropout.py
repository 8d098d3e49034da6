"""Dropout whose masks are cheap on a CPU: made from whole random words, sixteen bits an element.

``torch.nn.functional.dropout`` draws one Bernoulli number an element from a slow serial generator, which is a third to a
half of a small transformer's step on a CPU. Here a fast generator (SFC64) is keyed by one number drawn from torch's, so
that the masks follow ``torch.manual_seed`` and are restored with its state: a repeated, resumed or recomputed step draws
the same ones. On other devices torch's own dropout is fast, and is used.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

_LEVELS = 1 << 16


def dropout(x: Tensor, p: float, training: bool) -> Tensor:
    """``x`` with each element zeroed with probability p and the others divided by 1 - p; ``x`` where not training.

    p is rounded to a multiple of 2⁻¹⁶, and the scale is that of the rounded p: the mean is exact.
    """
    if not training or p <= 0.0:
        return x
    if x.device.type != "cpu":
        return F.dropout(x, p, True)
    return x * dropout_mask(tuple(x.shape), p, x.dtype)


def dropout_mask(shape: tuple[int, ...], p: float, dtype: torch.dtype) -> Tensor:
    """0 with probability p, else 1 / (1 - p), on the CPU; keyed by torch's default generator, which advances by one."""
    key = int(torch.randint(-(2**63), 2**63 - 1, (), dtype=torch.int64).item()) & 0xFFFF_FFFF_FFFF_FFFF
    count = int(np.prod(shape))
    words = np.random.SFC64(key).random_raw(-(-count // 4))
    threshold = min(round(p * _LEVELS), _LEVELS - 1)
    kept = words.view(np.uint16)[:count] >= threshold
    scale = _LEVELS / (_LEVELS - threshold)
    wide = np.float64 if dtype == torch.float64 else np.float32
    mask = torch.from_numpy(np.multiply(kept, wide(scale), dtype=wide)).view(shape)
    return mask.to(dtype)
