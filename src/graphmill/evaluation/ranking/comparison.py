"""Compares a model's link ranking with its baselines: degree, and those that have a system of their own."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from graphmill.errors import InputError
from graphmill.evaluation.json_values import plain
from graphmill.evaluation.ranking.against_baselines import AgainstBaselines, Average, against_baselines
from graphmill.evaluation.ranking.links import LinkRanking


@dataclass(frozen=True)
class ComparedRelation:
    """One relation's MRR by scorer."""

    relation: int
    name: str
    queries: int
    mrr: dict[str, float]


@dataclass(frozen=True)
class RankingComparison:
    """The comparison: a row per relation, macro and micro metrics per scorer, and the ratios to the baselines.

    ``against``: the comparison with the baselines, with intervals.
    """

    relations: tuple[ComparedRelation, ...]
    macro: dict[str, dict[str, float]]
    micro: dict[str, dict[str, float]]
    against: AgainstBaselines

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return plain(asdict(self))


def compare_to_baselines(
    model: LinkRanking, baselines: Mapping[str, LinkRanking], *, average: Average = "macro", seed: int = 0
) -> RankingComparison:
    """Compare rankings of the same queries. Raises :class:`InputError` if their queries differ.

    ``baselines``: by name, not empty. ``average``: the mean that ratios are of. ``seed``: for the bootstrap.
    """
    rankings = {"model": model, **baselines}
    _require_same_queries(rankings)
    return RankingComparison(
        relations=tuple(_rows(rankings)),
        macro={name: ranking.macro for name, ranking in rankings.items()},
        micro={name: ranking.micro for name, ranking in rankings.items()},
        against=against_baselines(model, baselines, average, seed=seed),
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
