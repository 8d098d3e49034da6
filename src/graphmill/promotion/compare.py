"""Compares a candidate with the live version on the same validation queries of the candidate's graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from graphmill.errors import InputError
from graphmill.evaluation.ranking.paired_difference import paired_bootstrap
from graphmill.evaluation.ranking.per_query import LeaveOut
from graphmill.evaluation.ranking.queries import LinkQueries, link_queries
from graphmill.graph.summary import NodeHashes, summarise
from graphmill.graph.typed_graph import TypedGraph
from graphmill.predictions.question import Question
from graphmill.predictions.settings import RankSettings
from graphmill.promotion.contents import load_champion
from graphmill.promotion.versions import Version
from graphmill.runs.export import Restored
from graphmill.systems.registry import entry
from graphmill.usage.ranking import QuestionRanking
from graphmill.usage.shared_queries import queries_of_links, shared_queries

FEWEST = 30
"""With fewer queries, an interval has no meaning."""


def compare(
    candidate: Restored,
    version: Version,
    question: Question | None = None,
    *,
    poll: Callable[[], None] = lambda: None,
) -> dict[str, Any]:
    """Evaluate both on the validation queries of the candidate's graph, or on those of a ``question``, with a paired
    bootstrap interval. Links: the mean reciprocal rank of the tails of all validation links, or the question's metric.
    Others: the queries and the metric that all systems for these data share.

    Returns ``metric``, its value for ``candidate`` and ``champion``, their ``difference`` with ``low``, ``high`` and
    ``level``, the number of ``queries``, the number of those ``left_out`` since the champion was trained on them or does
    not know their relation (``new_relations``), and ``new_rows``, the number of parameter rows (mostly of new nodes) that
    it does not have.

    Raises:
        InputError: the champion is unreadable or of a system for other data, or fewer than 30 queries are left.
    """
    graph, before = candidate.graph, version.about["system"]
    if entry(before).recommends != candidate.entry.recommends:
        raise InputError(
            f"{version.name} is of {before} and the candidate of {candidate.system.name}: one recommends items and the "
            "other scores links, so give the model another name"
        )
    if candidate.entry.recommends:
        shared = shared_queries(graph)
    else:
        shared = queries_of_links(graph, _queries(graph, question), question.metric if question else "mrr")
    champion = load_champion(version, candidate)
    unknown = {i for i, r in enumerate(graph.relations) if " | ".join(r.key) not in champion.graph.relations}
    leave_out = _trained_by_the_champion_alone(candidate, champion.graph, unknown)
    mine = shared.values(candidate.system, candidate.model, leave_out, poll)
    if len(mine.values) < FEWEST:
        raise InputError(
            f"only {len(mine.values)} validation queries are left to compare on: {version.name} was trained on the other "
            f"{mine.left_out}, or lacks their relation; give the graph the split that it had"
        )
    theirs = shared.values(champion.system, champion.model, leave_out, poll)
    difference = paired_bootstrap(mine.values, theirs.values, groups=mine.groups, units=mine.units)
    return {
        "metric": shared.metric,
        "candidate": difference.first,
        "champion": difference.second,
        "difference": difference.difference,
        "low": difference.low,
        "high": difference.high,
        "level": difference.level,
        "queries": difference.queries,
        "left_out": mine.left_out,
        "new_relations": [" | ".join(graph.relations[i].key) for i in sorted(unknown)],
        "new_rows": champion.new_rows,
    }


def _trained_by_the_champion_alone(candidate: Restored, trained: Any, unknown: set[int]) -> LeaveOut:
    if trained.content_hash == candidate.graph.content_hash:
        return lambda relation, heads, tails: np.zeros(len(heads), bool)
    hashes, summary = NodeHashes(candidate.graph), summarise(candidate.graph)

    def leave_out(relation: int, heads: np.ndarray, tails: np.ndarray) -> np.ndarray:
        if relation in unknown:
            return np.ones(len(heads), bool)
        pairs = hashes.pairs(heads, tails)
        return np.asarray(trained.trained_on(pairs) & ~summary.trained_on(pairs))

    return leave_out


def _queries(graph: TypedGraph, question: Question | None) -> LinkQueries:
    """The tails of every validation link, or those that a ``question`` asks for."""
    queries = link_queries(graph, "valid")
    return QuestionRanking(graph, RankSettings(), question).queries(queries) if question else queries


def check_question(system: Any, question: Question) -> None:
    """Raise :class:`InputError` for a question that a promotion cannot ask this system."""
    if entry(system.name).recommends:
        raise InputError(f"{system.name} recommends items, and promote.question is about predicted links: remove it")
    if question.split != "valid":
        raise InputError("a promotion compares on validation links: write split: valid into its question")
    _queries(system.graph, question)
