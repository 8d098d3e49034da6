"""Computes the median rank of each tail, which shows hubs: tails that rank high for every head."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from graphmill.predictions.top_tails import Candidates

_ROWS = 4096
"""Tails whose ranks are sorted at a time."""


def median_ranks(candidates: Candidates, most_heads: int, seed: int) -> NDArray[np.float32]:
    """float32 [count]: the median of each tail's rank over sampled heads; nan if it was a candidate of none.

    At most ``most_heads`` heads with a training link in the relation are sampled. A tail's rank is among the candidates
    of a head, with ties by tail number. Heads for which the tail is not a candidate are left out.
    """
    heads = candidates.drawn_heads(most_heads, "median-ranks", seed)
    ranks = np.zeros((candidates.count, len(heads)), np.int32)  # 0: not a candidate
    column = 0
    for _, scores in candidates.blocks(heads):
        for row in scores:  # one head at a time: sorting needs eight bytes per candidate
            order = torch.argsort(row, descending=True, stable=True)[: int(torch.isfinite(row).sum())].numpy()
            ranks[order, column] = np.arange(1, len(order) + 1)
            column += 1
    result = np.full(candidates.count, np.nan, np.float32)
    for start in range(0, candidates.count, _ROWS):
        ordered = np.sort(ranks[start : start + _ROWS], axis=1)
        absent = (ordered == 0).sum(1)
        known = np.flatnonzero(absent < len(heads))
        times = len(heads) - absent[known]
        middle = (ordered[known, absent[known] + shift] for shift in ((times - 1) // 2, times // 2))
        result[start + known] = np.mean(list(middle), axis=0)
    return result
