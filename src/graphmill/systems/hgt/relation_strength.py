"""How far each relation's vectors may overrule popularity, chosen on held-out links.

A relation with few links overfits its vector long before the others are trained. Log degree almost alone then scores it
better. One factor per relation on the vectors' part of the score corrects this after training, as a temperature does for
probabilities (Guo et al. 2017); here it is chosen by rank. It is above 0 even in the worst case: popularity leaves many
ties, and vectors break them better than chance does.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from graphmill.evaluation.ranking.queries import LinkQueries
from graphmill.evaluation.ranking.ranks import Scorer, ranks_of

#: Factors tried, from almost popularity alone to the score as it is trained.
STRENGTHS = (0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.7, 1.0)
#: Links ranked per relation and factor, at most: ranking all links of a large graph would take longer than the epochs.
STRENGTH_QUERIES = 1000


def fit_strength(decoder: nn.Module, scorer: Scorer, queries: LinkQueries) -> None:
    """Set ``decoder.strength`` to the factor of :data:`STRENGTHS` with the highest MRR, relation by relation.

    ``scorer`` scores with ``decoder``, whose scores are linear in ``strength`` [relations]. Relations without queries keep
    1; equal MRRs take the smaller factor.
    """
    strength: Tensor = decoder.strength  # type: ignore[assignment]
    chosen = torch.ones_like(strength)
    for relation in queries.relations:
        if not len(relation.heads):
            continue
        scaled, mrr = _Scaled(scorer, strength), []
        for factor in STRENGTHS:
            scaled.factor = factor
            mrr.append(np.mean(1.0 / ranks_of(scaled, relation).realistic))
        chosen[relation.relation] = STRENGTHS[int(np.argmax(mrr))]
    strength.copy_(chosen)


class _Scaled:
    """Scores at any strength from those at 0 and at 1, which are computed once for each block of heads."""

    def __init__(self, scorer: Scorer, strength: Tensor) -> None:
        self.scorer, self.strength, self.factor = scorer, strength, 1.0
        self.parts: dict[bytes, tuple[Tensor, Tensor]] = {}

    def score_targets(self, relation: int, heads: np.ndarray) -> Tensor:
        key = heads.tobytes()
        if key not in self.parts:
            found = []
            for factor in (0.0, 1.0):
                self.strength[relation] = factor
                found.append(self.scorer.score_targets(relation, heads))
            self.parts[key] = (found[0], found[1] - found[0])
        popularity, vectors = self.parts[key]
        return popularity + self.factor * vectors
