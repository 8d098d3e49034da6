"""Compares a model's link ranking with its baselines: degree, and those that have a system of their own."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from graphmill.errors import InputError
from graphmill.evaluation.health.check import Status, Threshold, Verdict, settings_of_thresholds
from graphmill.evaluation.json_values import plain
from graphmill.evaluation.ranking.against_baselines import AgainstBaselines, Average, against_baselines, title
from graphmill.evaluation.ranking.links import LinkRanking


@dataclass(frozen=True)
class RatioCheck:
    """A ratio of a link ranking with its threshold, its verdict, its remedy and its line in docs/reference/checks.md.

    ``check`` and ``text``: the check of the ranking asset ("": a check of its own exists). ``broken``: the docs' text
    on breaking it.
    """

    name: str
    threshold: Threshold
    good: str
    bad: str
    remedy: str
    unit: str
    broken: str
    check: str = ""
    text: str = ""

    def line(self) -> str:
        """The ratio's row in the table of the docs."""
        return f"| `{self.name}` | `{self.threshold.name}` {self.threshold.default} {self.unit} | {self.broken} |"


RATIO_CHECKS = (
    RatioCheck(
        "mrr_over_degree",
        Threshold("degree_ratio_min", 1.3, "MRR divided by that of a ranking by degree.", ge=0),
        "The model ranks links better than popularity alone.",
        "The model ranks links little better than popularity alone: it has learned mostly degrees.",
        "Train longer or raise embedding_dim; ConvE and HGT: loss softmax.",
        "× in MRR",
        "the model learned mostly popularity. Train longer or raise `embedding_dim`; ConvE and HGT: `loss: softmax`",
        "beats_degree_only",
        "The model ranks links better than the popularity of the target alone. If not: it has learnt mostly degrees.",
    ),
    RatioCheck(
        "share_above_degree",
        Threshold(
            "degree_share_min", 0.7, "Share of relations whose MRR is above that of a ranking by degree.", ge=0, le=1
        ),
        "In most relations the model beats popularity.",
        "In too many relations popularity alone ranks as well as the model.",
        "The table shows which relations; small ones need more epochs or features.",
        "of the relations",
        "the table shows which relations. Small ones need features or more epochs, and validation links: these weigh the "
        "parts of a blend in each relation, which keeps overfitted ones near popularity",
        "most_relations_beat_degree",
        "In most relations the model beats popularity. If not: `by_relation` shows the others.",
    ),
    RatioCheck(
        "mrr_over_best_baseline",
        Threshold(
            "baseline_ratio_min",
            1.0,
            "The model's figure divided by that of the best baseline (kNN, ComplEx, popularity, EASE, …).",
            ge=0,
        ),
        "{sentence}",
        "{sentence}",
        "Use {best} if its vectors or scores are enough, or change the model until it is better.",
        "×",
        "a simpler model is better: use it (`system: complex`, or kNN's scores), or change the model until it is "
        "better",
    ),
)

_OfChecks: Any = settings_of_thresholds(each.threshold for each in RATIO_CHECKS)


class RankingThresholds(_OfChecks):
    """Thresholds of a link ranking relative to its baselines. A value below any of them is a warning."""


@dataclass(frozen=True)
class ComparedRelation:
    """One relation's MRR by scorer."""

    relation: int
    name: str
    queries: int
    mrr: dict[str, float]


@dataclass(frozen=True)
class RankingComparison:
    """The comparison: a row per relation, macro and micro metrics per scorer, the ratios, and a verdict on each ratio.

    ``ratios``: ``mrr_over_degree``, ``mrr_over_best_baseline`` (of MRR), ``share_above_degree`` (of relations, strictly
    above). ``against``: the comparison with the baselines, with intervals.
    """

    relations: tuple[ComparedRelation, ...]
    macro: dict[str, dict[str, float]]
    micro: dict[str, dict[str, float]]
    ratios: dict[str, float]
    verdicts: tuple[Verdict, ...]
    against: AgainstBaselines

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return plain(asdict(self) | {"against": self.against.to_dict()})


def compare_to_baselines(
    model: LinkRanking,
    baselines: Mapping[str, LinkRanking],
    *,
    average: Average = "macro",
    thresholds: RankingThresholds | None = None,
    seed: int = 0,
) -> RankingComparison:
    """Compare rankings of the same queries. Raises :class:`InputError` if their queries differ.

    ``baselines``: by name, "degree" among them. ``average``: the mean that ratios are of. ``seed``: for the bootstrap.
    """
    thresholds = thresholds or RankingThresholds()
    rankings, degree = {"model": model, **baselines}, baselines["degree"]
    _require_same_queries(rankings)
    against = against_baselines(model, baselines, average, seed=seed)
    ratios = {
        "mrr_over_degree": against.ratios["degree"].value,
        "share_above_degree": _share_above(model, degree),
        "mrr_over_best_baseline": against.ratio.value,
    }
    return RankingComparison(
        relations=tuple(_rows(rankings)),
        macro={name: ranking.macro for name, ranking in rankings.items()},
        micro={name: ranking.micro for name, ranking in rankings.items()},
        ratios=ratios,
        verdicts=tuple(_verdicts(ratios, thresholds, against)),
        against=against,
    )


def _require_same_queries(rankings: dict[str, LinkRanking]) -> None:
    queries = {name: [(r.relation, r.queries) for r in ranking.relations] for name, ranking in rankings.items()}
    splits = {ranking.split for ranking in rankings.values()}
    if len(splits) > 1 or any(rows != queries["model"] for rows in queries.values()):
        raise InputError("rankings can only be compared on the same queries: rank the same split of the same graph")


def _rows(rankings: dict[str, LinkRanking]) -> list[ComparedRelation]:
    return [
        ComparedRelation(
            row.relation,
            row.name,
            row.queries,
            {name: ranking.relations[place].metrics["mrr"] for name, ranking in rankings.items()},
        )
        for place, row in enumerate(rankings["model"].relations)
    ]


def _share_above(model: LinkRanking, other: LinkRanking) -> float:
    above = [a.metrics["mrr"] > b.metrics["mrr"] for a, b in zip(model.relations, other.relations, strict=True)]
    return sum(above) / len(above) if above else float("nan")


def _verdicts(ratios: dict[str, float], thresholds: RankingThresholds, against: AgainstBaselines) -> list[Verdict]:
    about = {"sentence": against.sentence(), "best": title(against.best)}
    rows = []
    for each in RATIO_CHECKS:
        value, bound = ratios.get(each.name, math.nan), getattr(thresholds, each.threshold.name)
        if math.isnan(value):
            continue
        holds = value >= bound
        meaning, advice = (each.good, "") if holds else (each.bad, each.remedy)
        status: Status = "pass" if holds else "warn"
        rows.append(Verdict(each.name, value, bound, status, meaning.format(**about), advice.format(**about)))
    return rows
