"""The amounts of a blend's parts, chosen per relation on held-out links.

All combinations of a few amounts of each part are tried, each part alone among them, and the mean of the best by MRR is
taken. The likelihood would choose others, because a held-out link is missing from its target's degree. The MRR of a
relation's own links decides, together with the mean over relations, which counts as much as :data:`SHARED` further links.

On those links the chosen amounts rank better than on others. A figure of these links is cross-validated: the links of each
tenth of the heads are ranked by amounts that were chosen on the links of the others (:class:`CrossFittedScorer`). A few
choices are still of all: the amounts of features, whether there is one mixture for all relations, and the settings of kNN
and spectral vectors.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product

import numpy as np
import torch
from torch import Tensor

from graphmill.evaluation.ranking.queries import LinkQueries, RelationQueries, first_nodes
from graphmill.evaluation.ranking.ranks import count_rivals
from graphmill.graph.splits import node_keys
from graphmill.graph.training_links import TrainingLinks
from graphmill.graph.typed_graph import TypedGraph
from graphmill.sampling.keyed import generator
from graphmill.systems.blend.part import POPULARITY, BlendScorer, Part

QUERIES, ALL_QUERIES = 200, 10_000
"""Largest number of links that amounts are chosen on, per relation and over all relations."""
SHARED = 100.0
"""In each relation, the mean over all relations counts as much as this number of links."""
BEST = 5
"""Number of best choices that are averaged: on a few links, which one is best depends much on chance."""
FEW_LINKS, KEPT = 2, 0.99
"""Training links up to which a target has few; and the share of a relation's MRR that must be left, less a standard error.
Links into such targets are few in validation, and their ranks too low to count in the MRR of all."""
AMOUNTS_FOR_FEW = (0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
"""Amounts of the part for such targets that are tried. The first is none."""
FOLDS = 10
"""Parts of the heads for cross-validation."""
SCORES, MIXED = 1 << 22, 1 << 19
"""Largest number of scores of each part in memory at once, and of those that are mixed at once."""

Amounts = tuple[float, ...]
Folds = Sequence[np.ndarray]
"""By relation: the fold of each local head, int64 [at least the heads]."""


class CrossFittedScorer(BlendScorer):
    """Scores of held-out links on which amounts were chosen. ``mixes`` float32 [:data:`FOLDS`, relations, parts]: those for
    the heads of each of the ``folds``, chosen on the links of the others."""

    def __init__(self, links: TrainingLinks, parts: Mapping[str, Part], mixes: np.ndarray, folds: Folds) -> None:
        super().__init__(links, parts, mixes[0])
        self.mixes, self.folds = mixes, folds

    def score_targets(self, relation: int, heads: np.ndarray) -> Tensor:
        """:meth:`BlendScorer.score_targets`."""
        self.poll()
        scores = torch.zeros(len(heads), self.links.outgoing[relation].shape[1])
        for part, amounts in zip(self.parts.values(), self.mixes[self.folds[relation][heads], relation].T, strict=True):
            if amounts.any():
                scores += torch.from_numpy(amounts[:, None].copy()) * part.scores(relation, heads)
        return scores


def folds_of(graph: TypedGraph) -> Folds:
    """By a hash of the node, so that it stays in its fold when the graph grows."""
    nodes = graph.node_table()
    keys = node_keys(nodes["type"].to_pylist(), nodes["id"].to_pylist(), 0)
    folds = (keys % np.uint64(FOLDS)).astype(np.int64)
    return [folds[first:] for first, _ in first_nodes(graph)]


def fitted_mixes(scorer: BlendScorer, queries: LinkQueries, folds: Folds, seed: int) -> np.ndarray:
    """float32 [1 + :data:`FOLDS`, relations, parts] for ``scorer``, chosen on held-out links: on all, and for each
    fold on those of the others. Relations without any get the best choice by the mean over the others. On these
    links the macro MRR of the first is at least that of every part alone.
    """
    sampled = [_some(relation, queries, seed) for relation in queries.relations if len(relation.heads)]
    if not sampled:
        return np.tile(scorer.mix, (1 + FOLDS, 1, 1))
    alone, mixed = choices_of(scorer.parts)
    choices = list(dict.fromkeys([*mixed, *alone.values()]))
    values = np.array(choices, np.float32)
    ranks = [_reciprocal_ranks(scorer, relation, choices) for relation in sampled]
    shared = np.mean([each.mean(1) for each in ranks], axis=0)
    highest = max(shared[choices.index(choice)] for choice in alone.values())

    def mix_without(fold: int, best: int) -> np.ndarray:
        """Of the ``best`` choices of each relation; 0: of one choice for all."""
        left = [(r.relation, folds[r.relation][r.heads] != fold) for r in sampled]
        means = [
            (relation, rows.sum(), rank[:, rows].mean(1))
            for (relation, rows), rank in zip(left, ranks, strict=True)
            if rows.any()
        ]
        if not means:
            return scorer.mix
        shared = np.mean([mean for _, _, mean in means], axis=0)
        for_all = _mean_of_best(values, shared, best) if best else values[shared.argmax()]
        amounts = np.tile(for_all, (len(scorer.mix), 1))
        for relation, links, mean in means if best else ():
            weighed = links * mean / max(mean.max(), 1e-12) + SHARED * shared / max(shared.max(), 1e-12)
            amounts[relation] = _mean_of_best(values, weighed, best)
        return amounts

    for best in (BEST, 1):
        mix = mix_without(-1, best)
        reached = [_reciprocal_ranks(scorer, r, [tuple(mix[r.relation].tolist())]).mean() for r in sampled]
        if np.mean(reached) >= highest:
            break
    else:
        best = 0
    return np.stack([mix_without(fold, best) for fold in (-1, *range(FOLDS))])


def mix_for_few_links(scorer: BlendScorer, queries: LinkQueries, seed: int, name: str) -> np.ndarray:
    """float32 [relations, parts]: the mix of ``scorer`` with the amount of the part ``name`` that ranks held-out links into
    targets with few links best, of the amounts by which all links of the relation lose little (:data:`KEPT`), and not by
    chance. Relations that lose most keep their mix, where on all links the macro MRR would else be below that of a part
    alone.
    """
    mix, place = scorer.mix.copy(), list(scorer.parts).index(name)
    alone = list(choices_of(scorer.parts)[0].values())
    slack: np.ndarray = np.zeros(len(alone))
    gains: list[tuple[float, int, float]] = []
    for relation in (_some(r, queries, seed) for r in queries.relations if len(r.heads)):
        number = relation.relation
        choices = np.tile(mix[number], (len(AMOUNTS_FOR_FEW), 1))
        choices[:, place] = AMOUNTS_FOR_FEW
        amounts = [tuple(each) for each in [mix[number].tolist(), *choices.tolist()]]
        ranks = _reciprocal_ranks(scorer, relation, [*alone, *amounts])
        (before, *means), tried = ranks[len(alone) :].mean(1), ranks[len(alone) + 1 :]
        slack += before - ranks[: len(alone)].mean(1)
        few = scorer.links.degrees(number)[relation.tails] <= FEW_LINKS
        if few.any():
            changes = tried - tried[0]
            error = changes.std(1) / np.sqrt(changes.shape[1])
            kept = changes.mean(1) - error >= (KEPT - 1) * means[0]
            chosen = int(np.where(kept, tried[:, few].mean(1), -1).argmax())
            gains.append((means[chosen] - before, number, AMOUNTS_FOR_FEW[chosen]))
    left = float(slack.min())
    for gain, number, amount in sorted(gains, reverse=True):
        if gain < 0 and left + gain < 0:
            break
        left += gain
        mix[number, place] = amount
    return mix


def choices_of(parts: Mapping[str, Part]) -> tuple[dict[str, Amounts], list[Amounts]]:
    """By name the amounts with which a part alone ranks as its baseline; and the mixtures to try."""
    names = list(parts)
    place = names.index(POPULARITY)
    alone = {}
    for name, part in parts.items():
        amounts = dict.fromkeys(names, 0.0) | {POPULARITY: part.alone[1]}
        alone[name] = tuple((amounts | ({} if name == POPULARITY else {name: part.alone[0]})).values())
    every = product(*(part.amounts for part in parts.values()))
    return alone, [c for c in every if any(amount for n, amount in enumerate(c) if n != place)]


def _some(relation: RelationQueries, queries: LinkQueries, seed: int) -> RelationQueries:
    most = max(1, min(QUERIES, ALL_QUERIES // sum(len(r.heads) > 0 for r in queries.relations)))
    chosen = np.sort(generator(seed, "mix queries", relation.relation).permutation(len(relation.heads))[:most])
    return replace(relation, heads=relation.heads[chosen], tails=relation.tails[chosen])


def _mean_of_best(choices: np.ndarray, values: np.ndarray, best: int) -> np.ndarray:
    """float32 [parts]: the mean of the ``best`` rows of ``choices`` [choices, parts] by ``values`` [choices]."""
    mean: np.ndarray = choices[np.argsort(-values, kind="stable")[:best]].mean(0)
    return mean


def _reciprocal_ranks(scorer: BlendScorer, relation: RelationQueries, choices: Sequence[Amounts]) -> np.ndarray:
    """float64 [choices, links]: the reciprocal rank of each link of a relation."""
    reciprocal = np.zeros((len(choices), len(relation.heads)))
    rows, few = (max(1, size // max(relation.candidates, 1)) for size in (SCORES, MIXED))
    used = [any(choice[n] for choice in choices) for n in range(len(scorer.parts))]
    for start in range(0, len(relation.heads), rows):
        scorer.poll()
        heads = relation.heads[start : start + rows]
        scores = [
            part.scores(relation.relation, heads) if wanted else torch.zeros(len(heads), 1)
            for part, wanted in zip(scorer.parts.values(), used, strict=True)
        ]
        for first in range(0, len(heads), few):
            queries = slice(start + first, start + min(first + few, len(heads)))
            mixtures = _mixtures([score[first : first + few] for score in scores], choices)
            for number, mixture in enumerate(mixtures):
                above, tied = count_rivals(mixture, relation, queries)
                reciprocal[number, queries] = 1.0 / (1.0 + above + tied / 2)
    return reciprocal


def _mixtures(scores: list[Tensor], choices: Sequence[Amounts]) -> Iterator[Tensor]:
    """Σ amount × score for each of the choices. Neighbouring choices that begin alike share the sum of what is alike."""
    sums: list[Tensor] = []
    before: Amounts = ()
    for choice in choices:
        alike = next((n for n, pair in enumerate(zip(before, choice, strict=False)) if pair[0] != pair[1]), len(sums))
        del sums[alike:]
        for amount, score in zip(choice[alike:], scores[alike:], strict=True):
            term = amount * score
            sums.append(sums[-1] + term if sums else term)
        before = choice
        yield sums[-1]
