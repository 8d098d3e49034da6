"""Do all heads get the same tails? Figures on the tails that a table of predicted links names."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphmill.predictions.top_tails import BestTails


def diversity(best: BestTails, candidates: int, n: int) -> dict[str, Any]:
    """Of the tails of rank 1 to ``n``: how many distinct ones, what part of all ``candidates`` they are (``coverage``), the
    ``entropy`` of their frequencies in bits and ``effective_tails`` = 2^entropy, and the part of the heads that have the
    most frequent tail (``top_tail_share``), and of the rows that its ten most frequent tails take (``top_10_share``).
    """
    counts = tail_counts(best, candidates, n)
    there = counts[counts > 0]
    share = there / max(int(there.sum()), 1)
    entropy = float(-(share * np.log2(share)).sum())
    heads = len(np.unique(best.heads))
    return {
        "n": n,
        "distinct_tails": len(there),
        "coverage": len(there) / max(candidates, 1),
        "entropy": abs(entropy),
        "effective_tails": float(2**entropy) if len(there) else 0.0,
        "top_tail_share": float(there.max(initial=0) / max(heads, 1)),
        "top_10_share": float(np.sort(share)[-10:].sum()),
    }


def tail_counts(best: BestTails, candidates: int, n: int) -> np.ndarray:
    """int64 [candidates]: heads that have each tail at rank 1 to ``n``."""
    return np.bincount(best.tails[best.ranks <= n], minlength=candidates)
