"""Computes the usual rank of each tail, which shows hubs: tails that rank high for every head."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from graphmill.predictions.top_tails import Candidates


def usual_ranks(candidates: Candidates, most_heads: int, seed: int) -> NDArray[np.float32]:
    """float32 [count]: the geometric mean of each tail's rank over sampled heads; nan if it was a candidate of none.

    At most ``most_heads`` heads with a training link in the relation are sampled. A tail's rank is among the candidates
    of a head, with ties by tail number. Heads for which the tail is not a candidate are left out.
    """
    total = np.zeros(candidates.count)
    times = np.zeros(candidates.count, np.int64)
    heads = candidates.drawn_heads(most_heads, "usual-ranks", seed)
    logs = torch.log(torch.arange(1, candidates.count + 1, dtype=torch.float64))
    for _, scores in candidates.blocks(heads):
        for row in scores:  # one head at a time: sorting needs eight bytes per candidate
            order = torch.argsort(row, descending=True, stable=True)[: int(torch.isfinite(row).sum())].numpy()
            total[order] += logs[: len(order)].numpy()
            times[order] += 1
    mean = np.divide(total, times, out=np.full(len(total), np.nan), where=times > 0)
    return np.exp(mean).astype(np.float32)
