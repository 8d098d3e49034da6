"""Compares a candidate with the live version on the same validation queries of the candidate's graph."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from graphmill.errors import InputError
from graphmill.evaluation.ranking.paired_difference import PairedDifference, paired_bootstrap
from graphmill.evaluation.ranking.per_query import LeaveOut, QueryValues
from graphmill.graph.summary import NodeHashes, summarise
from graphmill.predictions.question import Question
from graphmill.promotion.contents import load_champion
from graphmill.promotion.queries import check_metric, query_values
from graphmill.promotion.versions import Version
from graphmill.runs.export import Restored
from graphmill.systems.registry import entry
from graphmill.usage.shared_queries import shared_queries

FEWEST = 30
"""With fewer queries, an interval has no meaning."""


@dataclass(frozen=True)
class Comparison:
    """``metric`` of both on the same validation queries. ``left_out``: number of queries that the champion was trained
    on, or whose relation it does not know (``new_relations``). ``new_rows``: number of parameter rows (mostly of new
    nodes) that it does not have.
    """

    metric: str
    difference: PairedDifference
    left_out: int
    new_relations: tuple[str, ...]
    new_rows: int

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        difference = self.difference
        return {
            "metric": self.metric,
            "candidate": difference.first,
            "champion": difference.second,
            "difference": difference.difference,
            "low": difference.low,
            "high": difference.high,
            "level": difference.level,
            "queries": difference.queries,
            "left_out": self.left_out,
            "new_relations": list(self.new_relations),
            "new_rows": self.new_rows,
        }


def compare(
    candidate: Restored,
    version: Version,
    metric: str,
    question: Question | None = None,
    *,
    poll: Callable[[], None] = lambda: None,
) -> Comparison:
    """Evaluate both on the validation queries of the candidate's graph, or on those of a ``question``, with a paired
    bootstrap interval.

    Two systems are compared by the queries and the metric that all systems for these data share.

    Raises:
        InputError: the champion is unreadable or answers other questions, the metric cannot be computed by query, or
            fewer than 30 queries are left.
    """
    values: Callable[[Any, Any, LeaveOut, Callable[[], None]], QueryValues] = partial(
        _queries_of_candidate, metric=metric, question=question
    )
    if version.about["system"] == candidate.system.name:
        check_metric(candidate.system, metric)
    else:
        shared = shared_queries(candidate.graph)
        for name in (version.about["system"], candidate.system.name):
            if entry(name).recommends != shared.recommends:
                raise InputError(
                    f"{version.name} is of {version.about['system']} and the candidate of {candidate.system.name}: one "
                    "recommends items and the other scores links, so give the model another name"
                )
        if not question:
            metric, values = shared.metric, shared.values
    champion = load_champion(version, candidate)
    graph = candidate.graph
    unknown = {i for i, r in enumerate(graph.relations) if " | ".join(r.key) not in champion.graph.relations}
    leave_out = _trained_by_the_champion_alone(candidate, champion.graph, unknown)
    mine = values(candidate.system, candidate.model, leave_out, poll)
    if len(mine.values) < FEWEST:
        raise InputError(
            f"only {len(mine.values)} validation queries are left to compare on: {version.name} was trained on the other "
            f"{mine.left_out}, or lacks their relation; give the graph the split that it had"
        )
    theirs = values(champion.system, champion.model, leave_out, poll)
    if not (np.array_equal(mine.units, theirs.units) and np.array_equal(mine.groups, theirs.groups)):
        raise InputError(
            f"{version.name} asks other validation queries of this graph than the candidate: compare by hand"
        )
    difference = paired_bootstrap(mine.values, theirs.values, groups=mine.groups, units=mine.units)
    names = tuple(" | ".join(graph.relations[i].key) for i in sorted(unknown))
    return Comparison(metric, difference, mine.left_out, names, champion.new_rows)


def _queries_of_candidate(
    system: Any, model: Any, leave_out: LeaveOut, poll: Callable[[], None], metric: str, question: Question | None
) -> QueryValues:
    return query_values(system, model, "valid", metric, leave_out, poll, question)


def _trained_by_the_champion_alone(candidate: Restored, trained: Any, unknown: set[int]) -> LeaveOut:
    count = len(candidate.graph.relations)
    if trained.content_hash == candidate.graph.content_hash:
        return lambda relation, heads, tails: np.zeros(len(heads), bool)
    hashes, summary = NodeHashes(candidate.graph), summarise(candidate.graph)

    def leave_out(relation: int, heads: np.ndarray, tails: np.ndarray) -> np.ndarray:
        if relation % count in unknown:
            return np.ones(len(heads), bool)
        pairs = hashes.pairs(heads, tails)
        return np.asarray(trained.trained_on(pairs) & ~summary.trained_on(pairs))

    return leave_out
