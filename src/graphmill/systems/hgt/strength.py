"""How far each relation's vectors may overrule popularity, chosen on held-out links.

A relation with few links to learn from overfits its vector long before the others are done; the score of such a relation
is better off near log degree alone. One factor per relation on the vectors' part of the score repairs that after the
fact, as a temperature does for probabilities (Guo et al. 2017), here by rank and per relation. Above 0 even in the worst
case: popularity leaves many ties, and vectors break them better than chance does.
"""

from __future__ import annotations

import numpy as np
import torch

from graphmill.evaluation.ranking.queries import LinkQueries
from graphmill.evaluation.ranking.ranks import Scorer, ranks_of
from graphmill.systems.hgt.decoder import LinkDecoder

#: Factors tried, from nearly popularity alone to what training made.
STRENGTHS = (0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.7, 1.0)
#: Links of a relation that say enough: ranking all of a large graph's once per factor would outlast the epochs between.
STRENGTH_QUERIES = 1000


def fit_strength(decoder: LinkDecoder, scorer: Scorer, queries: LinkQueries) -> None:
    """Set ``decoder.strength`` to the factor of :data:`STRENGTHS` with the highest MRR, relation by relation.

    ``scorer`` scores with ``decoder``; relations without queries keep 1. Equal MRRs take the smaller factor.
    """
    chosen = torch.ones_like(decoder.strength)
    for relation in queries.relations:
        if not len(relation.heads):
            continue
        mrr = []
        for factor in STRENGTHS:
            decoder.strength[relation.relation] = factor
            mrr.append(np.mean(1.0 / ranks_of(scorer, relation).realistic))
        chosen[relation.relation] = STRENGTHS[int(np.argmax(mrr))]
    decoder.strength.copy_(chosen)
