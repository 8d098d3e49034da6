"""Held-out link ranking: filtered MRR, Hits@k, AMRI and two AUCs, per relation, over all, and by the target's degree.

Ranks are exact and over all candidates: sampled ranking metrics do not even keep the order of models (Krichene & Rendle
2020).
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphmill.evaluation.json_values import plain
from graphmill.evaluation.ranking.negatives import auc, degree_weights, draw_negatives, uniform_weights
from graphmill.evaluation.ranking.queries import LinkQueries, RelationQueries, link_queries, relation_queries
from graphmill.evaluation.ranking.ranks import QueryRanks, Scorer, ranks_of

__all__ = [
    "DegreeBin",
    "LinkQueries",
    "LinkRanking",
    "RelationQueries",
    "RelationRanking",
    "Scorer",
    "link_queries",
    "rank_links",
    "relation_queries",
]

#: Lower ends of the bins of the target's training degree; the first bin holds targets that training never saw.
DEGREE_BINS = (0, 1, 3, 10, 30, 100)
#: Negatives per positive for each AUC.
AUC_NEGATIVES = 10
#: Prefixes of the metrics that bound what ties could do.
TIE_BOUNDS = ("optimistic_", "pessimistic_")
#: Queries that a relation needs for its AMRI to say whether it is at chance (its standard error is then about 0.1).
SIGNAL_QUERIES = 30


@dataclass(frozen=True)
class DegreeBin:
    """Queries whose target has ``low`` to ``high`` training links in the relation (``high`` −1: no upper end)."""

    low: int
    high: int
    queries: int
    metrics: dict[str, float]


@dataclass(frozen=True)
class RelationRanking:
    """One relation: ``metrics`` as in :class:`LinkRanking`, ``by_degree`` without empty bins."""

    relation: int
    name: str
    queries: int
    candidates: int
    metrics: dict[str, float]
    by_degree: tuple[DegreeBin, ...]


@dataclass(frozen=True)
class LinkRanking:
    """A ranking of one split.

    Metrics: ``mrr``, ``mr``, ``hits@k``, ``amri`` (1 − (MR − 1)/(its expectation − 1): 1 perfect, 0 chance; Berrendorf
    et al. 2020), each from the realistic rank; ``optimistic_…`` and ``pessimistic_…`` of the first three bound what
    ties could do;
    ``auc_uniform``, ``auc_degree`` (:mod:`graphmill.evaluation.ranking.negatives`). ``macro``: mean over relations that have
    queries,
    ``micro``: over queries (for the AUCs, whose scores do not compare between relations, the mean weighted by queries).
    """

    split: str
    ks: tuple[int, ...]
    relations: tuple[RelationRanking, ...]
    macro: dict[str, float]
    micro: dict[str, float]
    by_degree: tuple[DegreeBin, ...]

    @property
    def queries(self) -> int:
        """Queries ranked."""
        return sum(relation.queries for relation in self.relations)

    @property
    def signal(self) -> float:
        """Mean |AMRI| weighted by queries, of relations with 30 queries or more; about 0 when scores are chance.

        The sign is left out: a similarity that a relation inverts still proves that vectors and ids belong together.
        nan when no relation has enough queries.
        """
        judged = [r for r in self.relations if r.queries >= SIGNAL_QUERIES and not math.isnan(r.metrics["amri"])]
        if not judged:
            return float("nan")
        return float(np.average([abs(r.metrics["amri"]) for r in judged], weights=[r.queries for r in judged]))

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; undefined metrics are null."""
        return plain(asdict(self) | {"queries": self.queries, "signal": self.signal})


def rank_links(
    scorer: Scorer,
    queries: LinkQueries,
    *,
    ks: Sequence[int] = (1, 3, 10),
    batch_rows: int = 0,
    auc_negatives: int = AUC_NEGATIVES,
    seed: int = 0,
) -> LinkRanking:
    """Rank the held-out links of every relation among all candidates that are not otherwise known.

    ``batch_rows``: heads scored at a time, 0 for what fits 256 MiB of scores; it changes no result. ``auc_negatives``:
    drawn per query for each AUC by ``seed``; 0 leaves the AUCs out. Raises :class:`TrainingError` when a score is not
    finite.
    """
    relations: list[RelationRanking] = []
    ranks: list[QueryRanks] = []
    degrees: list[NDArray[np.int64]] = []
    for relation in queries.relations:
        if not len(relation.heads):
            continue
        negatives = {}
        if auc_negatives:
            for kind, weights in (("auc_uniform", uniform_weights), ("auc_degree", degree_weights)):
                negatives[kind] = draw_negatives(relation, weights(relation), auc_negatives, seed, kind)
        found = ranks_of(scorer, relation, negatives=negatives, batch_rows=batch_rows)
        degree = relation.train_degree[relation.tails]
        metrics = _rank_metrics(found, ks) | {
            kind: auc(found.scores, scores[~np.isnan(scores)]) for kind, scores in found.negatives.items()
        }
        bins = _by_degree(found, degree, ks)
        relations.append(
            RelationRanking(relation.relation, relation.name, len(degree), relation.candidates, metrics, bins)
        )
        ranks.append(found)
        degrees.append(degree)
    whole = _concatenate(ranks)
    micro = _rank_metrics(whole, ks)
    for kind in ("auc_uniform", "auc_degree") if auc_negatives else ():
        micro[kind] = _mean([r.metrics[kind] for r in relations], [r.queries for r in relations])
    macro = {name: _mean([r.metrics[name] for r in relations]) for name in micro}
    bins = _by_degree(whole, np.concatenate([np.zeros(0, dtype=np.int64), *degrees]), ks)
    return LinkRanking(queries.split, tuple(ks), tuple(relations), macro, micro, bins)


def _rank_metrics(ranks: QueryRanks, ks: Sequence[int]) -> dict[str, float]:
    if not len(ranks.above):
        return {name: float("nan") for name in ("mrr", "mr", *(f"hits@{k}" for k in ks), "amri")}
    metrics: dict[str, float] = {}
    kinds = (("", ranks.realistic), (TIE_BOUNDS[0], ranks.optimistic), (TIE_BOUNDS[1], ranks.pessimistic))
    for prefix, values in kinds:
        metrics[f"{prefix}mrr"] = float(np.mean(1.0 / values))
        metrics[f"{prefix}mr"] = float(np.mean(values))
        for k in ks:
            metrics[f"{prefix}hits@{k}"] = float(np.mean(values <= k))
    expected = float(np.mean((ranks.options - 1) / 2))
    metrics["amri"] = 1.0 - float(np.mean(ranks.realistic - 1)) / expected if expected > 0 else float("nan")
    return metrics


def _by_degree(ranks: QueryRanks, degree: NDArray[np.int64], ks: Sequence[int]) -> tuple[DegreeBin, ...]:
    place = np.searchsorted(DEGREE_BINS, degree, side="right") - 1
    bins = []
    for number, low in enumerate(DEGREE_BINS):
        chosen = place == number
        if not chosen.any():
            continue
        part = QueryRanks(ranks.above[chosen], ranks.tied[chosen], ranks.options[chosen], ranks.scores[chosen], {})
        metrics = {name: value for name, value in _rank_metrics(part, ks).items() if not name.startswith(TIE_BOUNDS)}
        high = DEGREE_BINS[number + 1] - 1 if number + 1 < len(DEGREE_BINS) else -1
        bins.append(DegreeBin(low, high, int(chosen.sum()), metrics))
    return tuple(bins)


def _concatenate(parts: Sequence[QueryRanks]) -> QueryRanks:
    none = np.zeros(0, dtype=np.int64)
    return QueryRanks(
        np.concatenate([none, *(part.above for part in parts)]),
        np.concatenate([none, *(part.tied for part in parts)]),
        np.concatenate([none, *(part.options for part in parts)]),
        np.concatenate([np.zeros(0), *(part.scores for part in parts)]),
        {},
    )


def _mean(values: Sequence[float], weights: Sequence[int] | None = None) -> float:
    """Mean of the defined values; nan when there is none."""
    kept = np.array([not math.isnan(value) for value in values], dtype=bool)
    if not kept.any():
        return float("nan")
    chosen = np.asarray(values, dtype=np.float64)[kept]
    return float(np.average(chosen, weights=None if weights is None else np.asarray(weights)[kept]))
