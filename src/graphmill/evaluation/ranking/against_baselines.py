"""Compares a model's ranking with its baselines: the best one, and the ratio with its interval."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from graphmill.evaluation.json_values import plain
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

    @property
    def ratio(self) -> Ratio:
        """The model's MRR over that of the best baseline."""
        return self.ratios[self.best]

    def sentence(self) -> str:
        """One sentence: which baselines beat the model, and by how much."""
        ours = f"the model's {self.average} MRR of {self.mrr['model']:.4f}"
        better = sorted((n for n in self.ratios if self.mrr[n] > self.mrr["model"]), key=lambda n: -self.mrr[n])
        if better:
            *first, last = (
                f"{title(name)} ({self.mrr[name]:.4f}, {self.mrr[name] / self.mrr['model'] - 1:.0%} above)"
                if self.mrr["model"] > 0
                else f"{title(name)} ({self.mrr[name]:.4f})"
                for name in better
            )
            named = f"{', '.join(first)} and {last}" if first else last
            verb = "beats" if len(better) == 1 else "beat"
            return f"{named} {verb} {ours}{self._interval()}."
        rival = f"{title(self.best)} ({self.mrr[self.best]:.4f})"
        share = self.ratio.value - 1
        above = f"by {share:.0%}" if not math.isnan(share) else "which has none right"
        return f"No baseline beats {ours}: it is above the best, {rival}, {above}{self._interval()}."

    def _interval(self) -> str:
        ratio = self.ratio
        if math.isnan(ratio.low):
            return ""
        return (
            f"; its ratio to the best is {ratio.value:.3f} (95 % interval {ratio.low:.3f} to {ratio.high:.3f}, "
            f"{self.queries:,} queries)"
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain values, with the sentence."""
        values: dict[str, Any] = plain(asdict(self) | {"sentence": self.sentence()})
        return values


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
