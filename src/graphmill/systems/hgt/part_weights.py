"""Weights of the parts of the score of an HGT with a softmax, chosen per relation on held-out links.

All combinations of a few amounts of each part are tried, and the mean of the best by MRR is taken. The likelihood would
choose other weights, because a held-out link is missing from its target's degree. The MRR of a relation's own links decides,
together with the mean over relations, which counts as much as :data:`SHARED` further links.
"""

from __future__ import annotations

from itertools import product

import numpy as np
import torch
from torch import Tensor

from graphmill.evaluation.ranking.queries import LinkQueries, RelationQueries
from graphmill.sampling.keyed import generator
from graphmill.systems.hgt.softmax_decoder import PARTS, PLAIN, SoftmaxDecoder
from graphmill.systems.hgt.softmax_scorer import SoftmaxScorer

QUERIES, ALL_QUERIES = 200, 10_000
"""Largest number of links that weights are chosen on, per relation and over all relations."""
SHARED = 100.0
"""In each relation, the mean over all relations counts as much as this number of links."""
BEST = 5
"""Number of best choices that are averaged: on a few links, which one is best depends much on chance."""
SCORES = 1 << 22
"""Largest number of scores of each part in memory at once."""
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
    total = torch.zeros(len(choices), dtype=torch.float64)
    rows = max(1, SCORES // max(relation.candidates, 1))
    for start in range(0, len(chosen), rows):
        part = chosen[start : start + rows]
        heads, tails = relation.heads[part], torch.from_numpy(np.ascontiguousarray(relation.tails[part], np.int64))
        scores = [_scores(decoder, scorer, relation.relation, heads, name) for name in there]
        barred = _known(relation, heads)
        for number, choice in enumerate(choices):
            mixed = sum(amount * score for amount, score in zip(choice, scores, strict=True) if amount)
            assert isinstance(mixed, Tensor)
            right = mixed.gather(1, tails[:, None])
            mixed = mixed.masked_fill(barred, -torch.inf)
            above = (mixed > right).sum(1) + (mixed == right).sum(1) / 2
            total[number] += (1.0 / (1.0 + above)).double().sum()
    return total.numpy() / len(chosen), len(chosen)


def _scores(decoder: SoftmaxDecoder, scorer: SoftmaxScorer, relation: int, heads: np.ndarray, part: str) -> Tensor:
    """fp32 [B, candidates]: scores by one part alone. Overwrites the relation's row of ``decoder.mix``."""
    assert decoder.mix is not None
    amounts = {name: float(name == part) for name in _AMOUNTS}
    decoder.mix[relation] = _mix(amounts).to(decoder.mix)
    return scorer.score_targets(relation, heads).float().cpu()


def _known(relation: RelationQueries, heads: np.ndarray) -> Tensor:
    """bool [B, candidates]: known targets of each head, including the target of the query."""
    out = torch.zeros(len(heads), relation.candidates, dtype=torch.bool)
    for row, head in enumerate(heads):
        known = relation.known_tails[relation.known_indptr[head] : relation.known_indptr[head + 1]]
        out[row, torch.from_numpy(np.ascontiguousarray(known, np.int64))] = True
    return out
