"""Health figures that are fast enough to compute during training. They show a collapse long before the full report."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from graphmill.evaluation.health.spectrum import effective_rank
from graphmill.sampling.keyed import generator

ROWS = 4096


def sampled_rows(count: int, seed: int) -> NDArray[np.int64]:
    """The rows, of ``count``, that :func:`quick_health` uses, ascending: a seeded sample, or all if there are few."""
    if count <= ROWS:
        return np.arange(count)
    return np.sort(generator(seed, "quick-health").choice(count, ROWS, replace=False))


def quick_health(X: NDArray[np.float32], types: NDArray[np.int64], *, seed: int) -> dict[str, float]:
    """Figures of a seeded sample of at most 4,096 rows: ``participation_ratio`` (uncentred), ``mean_cosine``, lowest
    ``within_type_rank``.

    The participation ratio is (Σλ)² / Σλ² of the uncentred Gram matrix; the rank is exp of the entropy of the centred
    singular values of one type (RankMe, Garrido et al. 2023), over types with 32 rows or more.
    """
    rows = sampled_rows(len(X), seed)
    sample, kinds = X[rows].astype(np.float32), types[rows]
    gram = sample.T @ sample
    trace = float(np.trace(gram))
    unit = sample / np.maximum(np.linalg.norm(sample, axis=1, keepdims=True), 1e-12)
    total = unit.sum(0, dtype=np.float64)
    n = len(sample)
    out = {
        "participation_ratio": trace**2 / max(float((gram.astype(np.float64) ** 2).sum()), 1e-30),
        "mean_cosine": (float(total @ total) - n) / max(n * (n - 1), 1),
    }
    ranks = [_rank(sample[kinds == kind]) for kind in np.unique(kinds) if (kinds == kind).sum() >= 32]
    return out | ({"within_type_rank": min(ranks)} if ranks else {})


def _rank(rows: NDArray[np.float32]) -> float:
    centred = rows - rows.mean(0)
    small = centred @ centred.T if len(centred) < centred.shape[1] else centred.T @ centred
    return effective_rank(np.clip(np.linalg.eigvalsh(small.astype(np.float64)), 0.0, None))
