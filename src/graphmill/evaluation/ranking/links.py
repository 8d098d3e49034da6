"""Ranks held-out links: filtered MRR, Hits@k and AMRI, per relation and in total.

Ranks are exact and over all candidates, because sampled ranking metrics can change the order of models (Krichene &
Rendle 2020).
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphmill.evaluation.json_values import plain
from graphmill.evaluation.ranking.queries import Int64, LinkQueries
from graphmill.evaluation.ranking.ranks import QueryRanks, Scorer, ranks_of

#: Number of queries that a relation needs for its AMRI to distinguish it from chance (its standard error is then about
#: 0.1).
SIGNAL_QUERIES = 30


@dataclass(frozen=True)
class RelationRanking:
    """One relation: ``metrics`` as in :class:`LinkRanking`.

    ``reciprocal``: float64 (queries), 1 / realistic rank of each query, in their order. It is not in reports.
    """

    relation: int
    name: str
    queries: int
    candidates: int
    metrics: dict[str, float]
    reciprocal: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0), repr=False, compare=False)


@dataclass(frozen=True)
class LinkRanking:
    """A ranking of one split.

    Metrics: ``mrr``, ``mr``, ``hits@k``, ``amri`` (1 − (MR − 1)/(its expectation − 1): 1 perfect, 0 chance; Berrendorf
    et al. 2020), each from the realistic rank. ``macro``: mean over relations with queries. ``micro``: mean over queries.
    """

    split: str
    ks: tuple[int, ...]
    relations: tuple[RelationRanking, ...]
    macro: dict[str, float]
    micro: dict[str, float]

    @property
    def queries(self) -> int:
        """Number of queries ranked."""
        return sum(relation.queries for relation in self.relations)

    @property
    def signal(self) -> float:
        """Mean |AMRI| of relations with at least 30 queries, weighted by queries; about 0 if scores are random.

        The sign is ignored: a relation of dissimilar nodes also proves that vectors belong to their ids. nan if no
        relation has enough queries.
        """
        judged = [r for r in self.relations if r.queries >= SIGNAL_QUERIES]
        return _mean([abs(r.metrics["amri"]) for r in judged], [r.queries for r in judged])

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; undefined metrics are null."""
        values = asdict(self) | {"queries": self.queries, "signal": self.signal}
        for relation in values["relations"]:
            del relation["reciprocal"]
        return plain(values)


def rank_links(
    scorer: Scorer, queries: LinkQueries, *, ks: Sequence[int] = (1, 3, 10), batch_rows: int = 0
) -> LinkRanking:
    """Rank the held-out links of every relation among all candidates that are not known links.

    ``batch_rows``: number of heads scored at a time, 0 for 256 MiB of scores; it does not change the result.
    Raises :class:`TrainingError` if a score is not finite.
    """
    relations: list[RelationRanking] = []
    tables = [np.zeros((3, 0), dtype=np.int64)]
    for relation in queries.relations:
        if not len(relation.heads):
            continue
        ranks = ranks_of(scorer, relation, batch_rows=batch_rows)
        table = np.stack([ranks.above, ranks.tied, ranks.options])
        tables.append(table)
        relations.append(
            RelationRanking(
                relation.relation,
                relation.name,
                len(relation.heads),
                relation.candidates,
                _rank_metrics(table, ks),
                1.0 / ranks.realistic,
            )
        )
    whole = np.concatenate(tables, axis=1)
    micro = _rank_metrics(whole, ks)
    macro = {name: _mean([r.metrics[name] for r in relations]) for name in micro}
    return LinkRanking(queries.split, tuple(ks), tuple(relations), macro, micro)


def _rank_metrics(table: Int64, ks: Sequence[int]) -> dict[str, float]:
    """``table`` int64 [3, queries]: ``above``, ``tied`` and ``options`` of :class:`QueryRanks`."""
    ranks = QueryRanks(*table).realistic
    if not table.size:
        return {name: float("nan") for name in ("mrr", "mr", *(f"hits@{k}" for k in ks), "amri")}
    metrics = {"mrr": float(np.mean(1.0 / ranks)), "mr": float(np.mean(ranks))}
    metrics |= {f"hits@{k}": float(np.mean(ranks <= k)) for k in ks}
    expected = float(np.mean((table[2] - 1) / 2))
    metrics["amri"] = 1.0 - float(np.mean(ranks - 1)) / expected if expected > 0 else float("nan")
    return metrics


def _mean(values: Sequence[float], weights: Sequence[int] | None = None) -> float:
    """Mean of the defined values; nan when there is none."""
    kept = ~np.isnan(values)
    if not kept.any():
        return float("nan")
    return float(np.average(np.asarray(values)[kept], weights=None if weights is None else np.asarray(weights)[kept]))
