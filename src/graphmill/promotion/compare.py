"""Compares a candidate with the live version on the same validation queries of the candidate's graph."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from torch import nn

from graphmill.errors import InputError
from graphmill.evaluation.ranking.paired_difference import PairedDifference, paired_bootstrap
from graphmill.evaluation.ranking.per_query import (
    LINK_METRICS,
    LIST_METRICS,
    NEXT_ITEM_METRICS,
    LeaveOut,
    QueryValues,
    link_values,
    list_values,
    next_item_values,
    parse_metric,
)
from graphmill.evaluation.ranking.queries import first_nodes, link_queries
from graphmill.graph.summary import NodeHashes, summarise
from graphmill.predictions.question import Question
from graphmill.predictions.settings import RankSettings
from graphmill.promotion.contents import load_champion
from graphmill.promotion.versions import Version
from graphmill.runs.export import Restored
from graphmill.systems.recommenders.evaluate import RecommenderEvaluator, known
from graphmill.systems.registry import entry
from graphmill.systems.sequences.evaluate import SequenceEvaluator
from graphmill.usage.ranking import QuestionRanking
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
        query_values, split="valid", metric=metric, question=question
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


def query_values(
    system: Any,
    model: nn.Module,
    leave_out: LeaveOut,
    poll: Callable[[], None] = lambda: None,
    *,
    split: str,
    metric: str,
    question: Question | None = None,
) -> QueryValues:
    """``metric`` of each query of ``split`` that is not left out, computed like the system's own ranking.

    Links: one group per relation, or a single one, by the system's average. Items: one query per user. With a
    ``question``: the tails that it asks for, one group per relation.

    Raises:
        InputError: the metric cannot be computed for each query, or the graph has no held-out data.
    """
    evaluator = system.evaluator
    if isinstance(evaluator, RecommenderEvaluator):
        view, score = evaluator.view, system.scorer(model).of_users
        offsets = (view.user_offset, view.item_offset)
        parts = known(view.train), known(view.held_out(split))
        return list_values(score, view.num_items, *parts, offsets, metric, leave_out, poll)
    if isinstance(evaluator, SequenceEvaluator):
        sequences, held_out = evaluator.sequences, evaluator.split(split)
        at = system.score_at(model, poll)
        return next_item_values(
            lambda rows: at(held_out.users[rows], held_out.stop[rows]),
            held_out.users,
            held_out.targets,
            sequences.num_items,
            held_out.known(sequences.items),
            (sequences.user_offset, sequences.item_offset),
            metric,
            leave_out,
            repeats=sequences.repeats,
        )
    if not hasattr(system, "scorer"):
        raise InputError(f"{system.name} cannot be compared query by query: it has no scorer")
    scorer = system.scorer(model)
    scorer.poll = poll
    graph, macro = system.graph, bool(question) or system.average == "macro"
    if question:
        queries = QuestionRanking(graph, RankSettings(), question).queries(link_queries(graph, split))
    else:
        queries = system.ranking_queries(split)
    return link_values(scorer, queries, first_nodes(graph), metric, leave_out, macro=macro)


def check_question(system: Any, question: Question) -> None:
    """Raise :class:`InputError` for a question that a promotion cannot ask this system."""
    if isinstance(system.evaluator, RecommenderEvaluator | SequenceEvaluator):
        raise InputError(f"{system.name} recommends items, and promote.question is about predicted links: remove it")
    if question.split != "valid":
        raise InputError("a promotion compares on validation links: write split: valid into its question")
    QuestionRanking(system.graph, RankSettings(), question).queries(link_queries(system.graph, "valid"))


def check_metric(system: Any, metric: str) -> None:
    """Raise :class:`InputError` for a metric that :func:`query_values` cannot compute for this system."""
    evaluator = system.evaluator
    names = LINK_METRICS
    if isinstance(evaluator, RecommenderEvaluator):
        names = LIST_METRICS
    elif isinstance(evaluator, SequenceEvaluator):
        names = NEXT_ITEM_METRICS
    parse_metric(metric, names)
