"""Compares a model's ranking with its baselines: the best one, and the ratio with its interval."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from graphmill.evaluation.ranking.links import LinkRanking
from graphmill.evaluation.ranking.paired_difference import paired_bootstrap
from graphmill.evaluation.ranking.per_query import values_of

Average = Literal["macro", "micro"]

#: The baselines' names in sentences and tables.
TITLES = {
    "degree": "degree-only",
    "recent": "degree of late",
    "knn": "kNN",
    "spectral": "spectral vectors",
    "complex": "ComplEx",
}


@dataclass(frozen=True)
class Ratio:
    """The MRR of one ranking divided by that of another, with its 95 % interval (nan: undefined)."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class AgainstBaselines:
    """``mrr``: macro or micro MRR (see ``average``) of "model" and of each baseline. ``ratios``: the model's MRR over
    that of each.

    ``best``: the baseline with the highest MRR. ``queries``: number of ranked queries.
    """

    average: Average
    mrr: dict[str, float]
    ratios: dict[str, Ratio]
    best: str
    queries: int


def title(baseline: str) -> str:
    """A baseline's name in sentences."""
    return TITLES.get(baseline, baseline)


def mrr_ratio(model: LinkRanking, other: LinkRanking, *, average: Average = "macro", seed: int = 0) -> Ratio:
    """The ratio of two rankings of the same queries, of macro means over relations or micro ones over queries."""
    above, below = (_mrr(ranking, average) for ranking in (model, other))
    value = above / below if below > 0 else math.nan
    (first, groups), (second, _) = values_of(model, "mrr"), values_of(other, "mrr")
    if not len(first) or len(first) != len(second):  # without the ranks of the queries there is no interval
        return Ratio(value, math.nan, math.nan)
    result = paired_bootstrap(first, second, groups=groups if average == "macro" else None, seed=seed)
    return Ratio(value, result.ratio_low, result.ratio_high)


def _mrr(ranking: LinkRanking, average: Average) -> float:
    return (ranking.macro if average == "macro" else ranking.micro)["mrr"]


def against_baselines(
    model: LinkRanking, baselines: Mapping[str, LinkRanking], average: Average, *, seed: int = 0
) -> AgainstBaselines:
    """Compare rankings of the same queries. ``baselines`` must not be empty. ``seed``: for the bootstrap."""
    figures = {name: _mrr(ranking, average) for name, ranking in baselines.items()}
    ratios = {name: mrr_ratio(model, other, average=average, seed=seed) for name, other in baselines.items()}
    best = max(figures, key=lambda name: figures[name])
    return AgainstBaselines(average, {"model": _mrr(model, average), **figures}, ratios, best, model.queries)
