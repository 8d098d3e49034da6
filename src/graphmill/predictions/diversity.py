"""Measures how diverse the tails of a table of predicted links are, and whether all heads get the same tails."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphmill.predictions.top_tails import BestTails, Candidates


def diversity(best: BestTails, candidates: Candidates, n: int) -> dict[str, Any]:
    """Figures of the tails with rank 1 to ``n``.

    They are the number of distinct tails, the fraction of heads that have the most frequent tail (``top_tail_share``),
    and the fraction of rows with one of the ten most frequent tails (``top_10_share``).
    """
    counts = np.bincount(best.tails[best.ranks <= n], minlength=candidates.count)
    present = counts[counts > 0]
    share = present / max(int(present.sum()), 1)
    heads = len(np.unique(best.heads))
    return {
        "n": n,
        "distinct_tails": len(present),
        "top_tail_share": float(present.max(initial=0) / max(heads, 1)),
        "top_10_share": float(np.sort(share)[-10:].sum()),
    }
