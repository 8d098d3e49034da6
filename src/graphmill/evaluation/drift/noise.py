"""Measures how much another seed changes an embedding. Drift is measured in this unit."""

from collections.abc import Sequence
from itertools import combinations

import numpy as np

from graphmill.evaluation.drift.figures import drift_figures
from graphmill.evaluation.drift.verdicts import SeedNoise
from graphmill.evaluation.embedding_files import Embeddings


def seed_noise(runs: Sequence[Embeddings]) -> SeedNoise:
    """The mean over all pairs of embeddings that differ only in their seed (two or more embeddings)."""
    result = [drift_figures(a, b) for a, b in combinations(runs, 2)]
    overall = [each.overall for each in result]
    names = {one.name for each in result for one in each.types}
    return SeedNoise(
        overlap_10=float(np.mean([each.overlap_10 for each in overall])),
        overlap_50=float(np.mean([each.overlap_50 for each in overall])),
        cka=float(np.mean([each.cka for each in overall])),
        cosine_aligned=float(np.mean([each.cosine_aligned for each in overall])),
        by_type={
            name: float(np.mean([one.overlap_10 for each in result for one in each.types if one.name == name]))
            for name in sorted(names)
        },
        pairs=len(result),
    )
