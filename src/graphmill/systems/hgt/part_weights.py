"""Weights of the parts of the score of an HGT with a softmax, chosen per relation on held-out links.

All combinations of a few amounts of each part are tried, and the mean of the best by MRR is taken. The likelihood would
choose other weights, because a held-out link is missing from its target's degree. The MRR of a relation's own links decides,
together with the mean over relations, which counts as much as :data:`SHARED` further links.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

import numpy as np
import torch
from torch import Tensor

from graphmill.evaluation.ranking.queries import LinkQueries, RelationQueries
from graphmill.evaluation.ranking.ranks import count_rivals
from graphmill.sampling.keyed import generator
from graphmill.systems.hgt.softmax_decoder import PARTS, PLAIN, SoftmaxDecoder
from graphmill.systems.hgt.softmax_scorer import SoftmaxScorer

QUERIES, ALL_QUERIES = 200, 10_000
"""Largest number of links that weights are chosen on, per relation and over all relations."""
SHARED = 100.0
"""In each relation, the mean over all relations counts as much as this number of links."""
BEST = 5
"""Number of best choices that are averaged: on a few links, which one is best depends much on chance."""
SCORES, MIXED = 1 << 22, 1 << 19
"""Largest number of scores of each part in memory at once, and of those that are mixed at once."""
_TRAINED = ("sum at the head", "sum at the target", "learned")
_AMOUNTS = {
    "trained": (1.0, 0.0),
    "popularity": (1.0, 0.3, 0.03),
    "ComplEx": (0.0, 0.3, 1.0, 3.0),
    "neighbours": (0.0, 5.0, 20.0),
    "paths": (0.0, 1.0, 3.0),
}
"""Amounts of the parts that are trained together, and of each other part. Popularity is never 0: it breaks ties."""


def fit_mix(decoder: SoftmaxDecoder, scorer: SoftmaxScorer, queries: LinkQueries, seed: int) -> None:
    """Set ``decoder.mix`` from held-out links; relations without any get the best choice by the mean over the others."""
    assert decoder.mix is not None
    asked = [r for r in queries.relations if len(r.heads)]
    if not asked:
        return
    there = _parts_there(decoder, scorer)
    choices = [
        c
        for c in product(*(_AMOUNTS[part] for part in there))
        if any(n for n, part in zip(c, there, strict=True) if part != "popularity")
    ]
    mixes = torch.stack([_mix(dict(zip(there, choice, strict=True))) for choice in choices])
    most = max(1, min(QUERIES, ALL_QUERIES // len(asked)))
    with torch.no_grad():
        ranked = [_reciprocal_ranks(decoder, scorer, r, there, choices, most, seed) for r in asked]
    shared = np.mean([means for means, _ in ranked], axis=0)
    fitted = _mean_of_best(mixes, shared).repeat(len(decoder.mix), 1)
    for relation, (means, links) in zip(asked, ranked, strict=True):
        own = means / max(means.max(), 1e-12)
        fitted[relation.relation] = _mean_of_best(mixes, links * own + SHARED * shared / max(shared.max(), 1e-12))
    decoder.mix.copy_(fitted)


def _mean_of_best(mixes: Tensor, values: np.ndarray) -> Tensor:
    """float32 [7]: the mean of the :data:`BEST` rows of ``mixes`` [choices, 7] by ``values`` [choices].

    If none is better than the first row (the score as it is trained), the first row.
    """
    best = np.argsort(-values, kind="stable")[:BEST]
    if values[best[0]] <= values[0]:
        return mixes[0]
    return mixes[torch.from_numpy(best)].mean(0)


def _parts_there(decoder: SoftmaxDecoder, scorer: SoftmaxScorer) -> list[str]:
    has = {
        "trained": True,
        "popularity": decoder.popularity is not None,
        "ComplEx": scorer.factors is not None,
        "neighbours": scorer.features is not None,
        "paths": scorer.features is not None,
    }
    return [part for part in _AMOUNTS if has[part]]


def _mix(amounts: dict[str, float]) -> Tensor:
    """float32 [7]: a row of the decoder's weights."""
    own = dict.fromkeys(_TRAINED, amounts["trained"]) | amounts
    return torch.tensor([own.get(part, plain) for part, plain in zip(PARTS, PLAIN, strict=True)])


def _reciprocal_ranks(
    decoder: SoftmaxDecoder,
    scorer: SoftmaxScorer,
    relation: RelationQueries,
    there: list[str],
    choices: list[tuple[float, ...]],
    most: int,
    seed: int,
) -> tuple[np.ndarray, int]:
    """float64 [choices]: mean reciprocal rank over some links of a relation; and the number of these links."""
    chosen = np.sort(generator(seed, "mix queries", relation.relation).permutation(len(relation.heads))[:most])
    asked = replace(relation, heads=relation.heads[chosen], tails=relation.tails[chosen])
    total = np.zeros(len(choices))
    rows, few = (max(1, size // max(relation.candidates, 1)) for size in (SCORES, MIXED))
    for start in range(0, len(chosen), rows):
        heads = asked.heads[start : start + rows]
        scores = [_scores(decoder, scorer, relation.relation, heads, name) for name in there]
        for first in range(0, len(heads), few):
            queries = slice(start + first, start + min(first + few, len(heads)))
            mixtures = _mixtures([score[first : first + few] for score in scores], choices)
            for number, mixture in enumerate(mixtures):
                above, tied, _ = count_rivals(mixture, asked, queries)
                total[number] += (1.0 / (1.0 + above + tied / 2)).sum()
    return total / len(chosen), len(chosen)


def _mixtures(scores: list[Tensor], choices: list[tuple[float, ...]]) -> Iterator[Tensor]:
    """Σ amount × score for each of the choices. Neighbouring choices that begin alike share the sum of what is alike."""
    sums: list[Tensor] = []
    before: tuple[float, ...] = ()
    for choice in choices:
        alike = next((n for n, pair in enumerate(zip(before, choice, strict=False)) if pair[0] != pair[1]), len(sums))
        del sums[alike:]
        for amount, score in zip(choice[alike:], scores[alike:], strict=True):
            own = amount * score
            sums.append(sums[-1] + own if sums else own)
        before = choice
        yield sums[-1]


def _scores(decoder: SoftmaxDecoder, scorer: SoftmaxScorer, relation: int, heads: np.ndarray, part: str) -> Tensor:
    """fp32 [B, candidates]: scores by one part alone. Overwrites the relation's row of ``decoder.mix``."""
    assert decoder.mix is not None
    amounts = {name: float(name == part) for name in _AMOUNTS}
    decoder.mix[relation] = _mix(amounts).to(decoder.mix)
    return scorer.score_targets(relation, heads).float().cpu()
