"""Compares a model's link ranking with its baselines: a row per relation, the best baseline, and ratios with intervals."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from graphmill.errors import InputError
from graphmill.evaluation.json_values import plain
from graphmill.evaluation.ranking.links import LinkRanking
from graphmill.evaluation.ranking.paired_difference import paired_bootstrap
from graphmill.evaluation.ranking.per_query import values_of

Average = Literal["macro", "micro"]

#: The names of baselines of links in sentences and tables.
TITLES = {
    "degree": "degree-only",
    "recent": "degree of late",
    "knn": "kNN",
    "spectral": "spectral vectors",
    "complex": "ComplEx",
}
SIMPLER = {
    "popularity": "popularity",
    "markov": "a Markov chain",
    "item_knn": "item-kNN",
    "session_knn": "item-kNN over sessions",
    "ease": "EASE",
    "repeats": "the user's own repeats",
    "mf": "matrix factorisation",
}
"""Names for people of the simpler systems with which recommenders are compared."""
_METRIC = re.compile(
    r"(?:(?P<who>\w+?)_)?(?P<metric>(?:mrr|ndcg|hr|hit|hits|recall|precision|map|coverage|popularity_bias)(?:@\d+)?)"
)


@dataclass(frozen=True)
class Ratio:
    """The MRR of one ranking divided by that of another, with its 95 % interval (nan: undefined)."""

    value: float
    low: float
    high: float


def title(baseline: str) -> str:
    """A baseline's name in sentences."""
    return TITLES.get(baseline, baseline)


def mrr_of(ranking: LinkRanking, average: Average) -> float:
    """The macro or micro MRR of a ranking."""
    return (ranking.macro if average == "macro" else ranking.micro)["mrr"]


def mrr_ratio(model: LinkRanking, other: LinkRanking, *, average: Average = "macro", seed: int = 0) -> Ratio:
    """The ratio of two rankings of the same queries, of macro means over relations or micro ones over queries."""
    above, below = (mrr_of(ranking, average) for ranking in (model, other))
    value = above / below if below > 0 else math.nan
    (first, groups), (second, _) = values_of(model, "mrr"), values_of(other, "mrr")
    if not len(first) or len(first) != len(second):  # without the ranks of the queries there is no interval
        return Ratio(value, math.nan, math.nan)
    result = paired_bootstrap(first, second, groups=groups if average == "macro" else None, seed=seed)
    return Ratio(value, result.ratio_low, result.ratio_high)


def compare_to_baselines(
    model: LinkRanking, baselines: Mapping[str, LinkRanking], *, average: Average = "macro", seed: int = 0
) -> dict[str, Any]:
    """Compare rankings of the same queries, as plain values for JSON. Raises :class:`InputError` if their queries differ.

    ``baselines``: by name, not empty. ``average``: the mean that ratios are of. ``seed``: for the bootstrap.

    The result has ``relations`` (each with its MRR by scorer), ``macro`` and ``micro`` (metrics by scorer), and ``against``:
    the ``average``, by it the ``mrr`` by scorer, the ``ratios`` of the model's to each baseline's, the ``best`` baseline
    and the number of ``queries``.
    """
    rankings = {"model": model, **baselines}
    queries = {name: (each.split, [(r.relation, r.queries) for r in each.relations]) for name, each in rankings.items()}
    if any(each != queries["model"] for each in queries.values()):
        raise InputError("rankings can only be compared on the same queries: rank the same split of the same graph")
    mrr = {name: mrr_of(ranking, average) for name, ranking in rankings.items()}
    relations = [
        {
            "relation": row.relation,
            "name": row.name,
            "queries": row.queries,
            "mrr": {name: ranking.relations[place].metrics["mrr"] for name, ranking in rankings.items()},
        }
        for place, row in enumerate(model.relations)
    ]
    against = {
        "average": average,
        "mrr": mrr,
        "ratios": {
            name: asdict(mrr_ratio(model, other, average=average, seed=seed)) for name, other in baselines.items()
        },
        "best": max(baselines, key=lambda name: mrr[name]),
        "queries": model.queries,
    }
    return plain(
        {
            "relations": relations,
            "macro": {name: ranking.macro for name, ranking in rankings.items()},
            "micro": {name: ranking.micro for name, ranking in rankings.items()},
            "against": against,
        }
    )


def grouped(figures: dict[str, float]) -> dict[str, dict[str, float]]:
    """``{"ndcg@10": a, "popularity_ndcg@10": b}`` → ``{"model": {"ndcg@10": a}, "popularity": {"ndcg@10": b}}``.

    Values that are not ranking metrics are left out.
    """
    out: dict[str, dict[str, float]] = {"model": {}}
    for name, value in figures.items():
        if match := _METRIC.fullmatch(name):
            out.setdefault(match["who"] or "model", {})[match["metric"]] = value
    return out
