"""Health figures that are fast enough to compute during training. They show a collapse long before the full report."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from graphmill.evaluation.health.moments import moments_of
from graphmill.evaluation.health.similarity import cosines_of
from graphmill.evaluation.health.spectrum import effective_rank, participation_ratio, spectrum_of
from graphmill.sampling.keyed import sampled

ROWS = 4096


def sampled_rows(count: int, seed: int) -> NDArray[np.int64]:
    """The rows, of ``count``, that :func:`quick_health` uses, ascending: a seeded sample, or all if there are few."""
    return sampled(np.arange(count), ROWS, seed, "quick-health")


def quick_health(X: NDArray[np.float32], types: NDArray[np.int64], *, seed: int) -> dict[str, float]:
    """Figures of a seeded sample of at most 4,096 rows: ``participation_ratio`` (uncentred), ``mean_cosine``, lowest
    ``within_type_rank`` of types with 32 rows or more.

    They are those of the report (:mod:`.spectrum`), without rows that are zero or not finite.
    """
    rows = sampled_rows(len(X), seed)
    sample, (names, kinds) = X[rows], np.unique(types[rows], return_inverse=True)
    norms = np.linalg.norm(sample.astype(np.float64), axis=1)
    live = (norms > 0) & (norms < np.inf)
    moments = moments_of(sample[live], kinds[live], len(names), norms[live], ROWS)
    ranks = [effective_rank(own.spectrum) for own in moments.types if own.rows >= 32]
    out = {
        "participation_ratio": participation_ratio(spectrum_of(moments.second)),
        "mean_cosine": cosines_of(moments).overall,
    }
    return out | ({"within_type_rank": min(ranks)} if ranks else {})
