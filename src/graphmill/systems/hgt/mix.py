"""How much each part of a softmax HGT's score counts in a relation, fitted on held-out links.

A multinomial logit over the parts' scores (stacking, Wolpert 1992): all relations share one vector of weights, and each
relation's own are drawn towards it, the more so the fewer links it has. A part that says nothing gets little; where ComplEx
says everything, it gets everything. Whether the fitted weights are taken is decided by links that they were not fitted on.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from graphmill.evaluation.ranking.queries import LinkQueries, RelationQueries
from graphmill.sampling.keyed import generator
from graphmill.systems.hgt.softmax_decoder import PARTS, SoftmaxDecoder
from graphmill.systems.hgt.softmax_scorer import SoftmaxScorer

QUERIES, ALL_QUERIES, CANDIDATES = 200, 10_000, 1000
"""Links of a relation, and of all, that weights are fitted on, and wrong targets that each is told from."""
SHRINKAGE, SHARED_SHRINKAGE = 10.0, 1e-3
"""Of a relation's weights towards the shared ones, in nats of its links' summed loss; of those towards the start."""
_START = (1.0, 1.0, 1.0, 0.5, 1.0)


@dataclass(frozen=True)
class _Asked:
    """``scores`` fp64 [5, n, 1 + candidates]: of each part, the right target's first; ``barred`` bool: no wrong targets."""

    relation: int
    scores: Tensor
    barred: Tensor

    def rows(self, chosen: np.ndarray) -> _Asked:
        place = torch.from_numpy(chosen)
        return _Asked(self.relation, self.scores[:, place], self.barred[place])

    def losses(self, weights: Tensor) -> Tensor:
        """−log softmax of each right target [n], for weights [5]."""
        mixed = self._mixed(weights)
        return torch.logsumexp(mixed, 1) - mixed[:, 0]

    def reciprocal_ranks(self, weights: Tensor) -> float:
        """Their mean."""
        mixed = self._mixed(weights)
        above = (mixed[:, 1:] > mixed[:, :1]).sum(1) + (mixed[:, 1:] == mixed[:, :1]).sum(1) / 2
        return float((1.0 / (1.0 + above)).mean())

    def _mixed(self, weights: Tensor) -> Tensor:
        return torch.tensordot(weights, self.scores, 1).masked_fill(self.barred, -torch.inf)


def fit_mix(decoder: SoftmaxDecoder, scorer: SoftmaxScorer, queries: LinkQueries, seed: int) -> None:
    """Set ``decoder.mix`` from held-out links; relations without any get the shared weights.

    Half of the links choose weights that rank the other half, and the other way round; only where all of them are ranked
    better so than by the score as it is trained, weights of all links are taken.
    """
    assert decoder.mix is not None
    plain = torch.tensor([1.0, 1, 1, 0, 1], dtype=torch.float64)
    with torch.no_grad():
        most = max(1, min(QUERIES, ALL_QUERIES // max(sum(len(r.heads) > 0 for r in queries.relations), 1)))
        asked = [_asked(decoder, scorer, r, most, seed) for r in queries.relations if len(r.heads)]
    fitted = plain.repeat(len(decoder.mix), 1)
    if asked:
        halves = [np.array_split(generator(seed, "mix", a.relation).permutation(a.scores.shape[1]), 2) for a in asked]
        found, before = [], []
        for own, other in ((0, 1), (1, 0)):
            weights = _weights([a.rows(h[own]) for a, h in zip(asked, halves, strict=True) if len(h[own])], fitted)
            judged = [a.rows(h[other]) for a, h in zip(asked, halves, strict=True) if len(h[other])]
            found += [a.reciprocal_ranks(weights[a.relation]) for a in judged]
            before += [a.reciprocal_ranks(plain) for a in judged]
        if np.mean(found) > np.mean(before):
            fitted = _weights(asked, fitted)
    decoder.mix.copy_(fitted)


def _asked(decoder: SoftmaxDecoder, scorer: SoftmaxScorer, relation: RelationQueries, most: int, seed: int) -> _Asked:
    """The scores of each part, by a mix of that part alone."""
    assert decoder.mix is not None
    number, rng = relation.relation, generator(seed, "mix queries", relation.relation)
    chosen = np.sort(rng.permutation(len(relation.heads))[:most])
    heads, tails = relation.heads[chosen], relation.tails[chosen]
    wrong = np.sort(rng.permutation(relation.candidates)[:CANDIDATES])
    columns, own = torch.from_numpy(wrong), torch.from_numpy(np.ascontiguousarray(tails, np.int64))[:, None]
    scores = torch.zeros(len(PARTS), len(heads), 1 + len(wrong), dtype=torch.float64)
    for part in range(len(PARTS)):
        decoder.mix[number] = torch.nn.functional.one_hot(torch.tensor(part), len(PARTS)).to(decoder.mix)
        found = scorer.score_targets(number, heads).cpu()
        scores[part] = torch.cat([found.gather(1, own), found[:, columns]], 1).double()
    barred = torch.zeros(scores.shape[1:], dtype=torch.bool)
    for row, head in enumerate(heads):
        known = relation.known_tails[relation.known_indptr[head] : relation.known_indptr[head + 1]]
        barred[row, 1:] = torch.from_numpy(np.isin(wrong, np.append(known, tails[row])))
    return _Asked(number, scores, barred)


def _weights(asked: list[_Asked], like: Tensor) -> Tensor:
    """fp64 [relations, 5]: fitted to some links."""
    start = torch.tensor(_START, dtype=torch.float64)
    shared = _minimum(
        lambda w: torch.stack([a.losses(w).mean() for a in asked]).mean() + SHARED_SHRINKAGE * _distance(w, start),
        start,
    )
    out = shared.repeat(len(like), 1)
    for each in asked:
        out[each.relation] = _minimum(
            lambda w, each=each: each.losses(w).sum() + SHRINKAGE * _distance(w, shared),
            shared,
        )
    return out


def _distance(weights: Tensor, centre: Tensor) -> Tensor:
    return (((weights - centre) / centre.abs().clamp(min=0.05)) ** 2).sum()


def _minimum(loss: object, start: Tensor) -> Tensor:
    """Of a convex function of a few weights, none below 0."""
    weights = start.clone().requires_grad_(True)
    optimizer = torch.optim.LBFGS([weights], max_iter=40, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimizer.zero_grad()
        value: Tensor = loss(weights)  # type: ignore[operator]
        value.backward()
        return value

    with torch.enable_grad():
        optimizer.step(closure)
    # None is negative: that would be rewarded for popularity alone, as a held-out link is missing from its target's degree.
    return weights.detach().clamp(min=0.0)
