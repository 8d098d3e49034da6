"""Evaluates one model on the held-out queries of its graph: links, triples, items or next items by system."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn

from graphmill.errors import InputError
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
from graphmill.predictions.question import Question
from graphmill.predictions.settings import RankSettings
from graphmill.systems.recommenders.evaluate import RecommenderEvaluator, known
from graphmill.systems.sequences.evaluate import SequenceEvaluator
from graphmill.usage.ranking import QuestionRanking


def query_values(
    system: Any,
    model: nn.Module,
    split: str,
    metric: str,
    leave_out: LeaveOut,
    poll: Callable[[], None] = lambda: None,
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
