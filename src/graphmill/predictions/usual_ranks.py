"""Frequent flyers: the rank that a tail usually has, so that one sees which tails are high for this head and not for all."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from graphmill.predictions.top_tails import Candidates


def usual_ranks(candidates: Candidates, most_heads: int, seed: int) -> NDArray[np.float32]:
    """float32 [count]: the geometric mean of each tail's rank over drawn heads; nan where it was a candidate of none.

    Heads are those with a training link in the relation, at most ``most_heads`` of them. A tail's rank counts among the
    candidates of that head, ties in the order of their numbers; heads for which it is no candidate have no part.
    """
    total = np.zeros(candidates.count)
    times = np.zeros(candidates.count, np.int64)
    heads = candidates.drawn_heads(most_heads, "usual-ranks", seed)
    logs = torch.log(torch.arange(1, candidates.count + 1, dtype=torch.float64))
    for _, scores in candidates.blocks(heads):
        for row in scores:  # one at a time: an order takes eight bytes a candidate
            order = torch.argsort(row, descending=True, stable=True)[: int(torch.isfinite(row).sum())].numpy()
            total[order] += logs[: len(order)].numpy()
            times[order] += 1
    mean = np.divide(total, times, out=np.full(len(total), np.nan), where=times > 0)
    return np.exp(mean).astype(np.float32)
