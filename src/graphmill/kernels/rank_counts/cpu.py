"""``rank_counts`` for the CPU, compiled."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphmill.kernels.runtime.jit import jit
from graphmill.kernels.runtime.threads import over_ranges

_jit = jit(nogil=True, error_model="numpy")


def rank_counts(scores: Tensor, target: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """See :func:`graphmill.kernels.rank_counts.rank_counts`."""
    counts = torch.zeros(3, len(scores), dtype=torch.int64)
    arrays = (scores.detach().numpy(), target.detach().numpy(), counts.numpy())
    over_ranges(_count, (*arrays, arrays[0].dtype.type(np.finfo(arrays[0].dtype).max)), len(scores), scores.numel())
    return counts[0], counts[1], counts[2]


@_jit
def _count(scores: Any, target: Any, counts: Any, largest: Any, first: int, last: int) -> None:
    for row in range(first, last):
        score = target[row]
        # Counters have the width of a score, so that both fit vectors of one length.
        above, tied, bad = np.int32(0), np.int32(0), np.int32(0)
        for c in range(scores.shape[1]):
            s = scores[row, c]
            above += np.int32(s > score)
            tied += np.int32(s == score)
            bad += np.int32(not (abs(s) <= largest))
        counts[0, row], counts[1, row], counts[2, row] = above, tied, bad
