"""Validation queries that all systems for a graph's data can answer, so that their figures can be compared."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch

from graphmill.errors import InputError
from graphmill.evaluation.baselines.next_item import NextItemSplit
from graphmill.evaluation.ranking.per_query import LeaveOut, QueryValues, link_values, list_values, next_item_values
from graphmill.evaluation.ranking.queries import LinkQueries, first_nodes, link_queries
from graphmill.graph.histories import Histories
from graphmill.graph.interactions import Interactions, interaction_relation, interaction_view, require_items
from graphmill.graph.sequences import Sequences, sequence_view
from graphmill.graph.splits import VALID
from graphmill.graph.typed_graph import TypedGraph
from graphmill.sampling.ranges import ranges
from graphmill.systems.recommenders.evaluate import known
from graphmill.systems.sequences.evaluate import SequenceEvaluator

Poll = Callable[[], None]
LIST = 20
"""Length of the lists of a recall."""
NEXT = 10
"""Length of the lists of next items."""
RELATION_QUERIES = 2_000
"""Largest number of validation links of each relation that are asked, a seeded sample."""


@dataclass(frozen=True)
class SharedQueries:
    """``metric`` of a system's model on the same ``total`` queries: ``values(system, model, leave_out, poll)``.
    ``recommends``: the systems that can answer are those that recommend items; else those that score links. ``cut``: the
    length of the lists, if there are too few items for the systems' defaults; else 0."""

    metric: str
    recommends: bool
    values: Callable[[Any, Any, LeaveOut, Poll], QueryValues]
    total: int
    cut: int = 0


def shared_queries(graph: TypedGraph, split: str = "valid") -> SharedQueries:
    """The queries by the graph's data: interactions in order if one is held out for each user, other interactions, or
    links (the tails of every relation). ``split``: "valid", or "test" for a measurement that chooses nothing.

    Raises:
        InputError: the graph has no validation split.
    """
    try:
        interaction_relation(graph)
    except InputError:
        return queries_of_links(graph, link_queries(graph, split, max_per_relation=RELATION_QUERIES))
    view = interaction_view(graph)
    require_items(graph.path, view.num_items)
    if not len(view.valid):
        raise InputError(
            f"{graph.path} has no validation split to choose or compare on: hold interactions out (graph.split.valid); "
            "from users with fewer than 3 interactions nothing is held out"
        )
    sequences = None
    with suppress(InputError):  # interactions without an order
        sequences = sequence_view(graph)
    one_each = sequences is not None and len(sequences.targets("valid")[0]) == int((sequences.split == VALID).sum())
    return _next_items(sequences, split) if sequences is not None and one_each else _items(view, sequences, split)


def queries_of_links(graph: TypedGraph, queries: LinkQueries, metric: str = "mrr") -> SharedQueries:
    """``metric`` of the links, one group per relation."""

    def values(system: Any, model: Any, leave_out: LeaveOut, poll: Poll) -> QueryValues:
        scorer = system.scorer_for(model, queries.split)
        scorer.poll = poll
        return link_values(scorer, queries, first_nodes(graph), metric, leave_out)

    return SharedQueries(metric, False, values, queries.total)


def _items(view: Interactions, sequences: Sequences | None, split: str) -> SharedQueries:
    parts, offsets = (known(view.train), known(view.held_out(split))), (view.user_offset, view.item_offset)
    ends = np.zeros(view.num_users, np.int64) if sequences is None else sequences.train_ends()
    k = _cut(view.num_items) or LIST

    def values(system: Any, model: Any, leave_out: LeaveOut, poll: Poll) -> QueryValues:
        after = _scores(system, model, poll)
        return list_values(lambda users: after(users, ends[users]), view.num_items, *parts, offsets, k, leave_out, poll)

    return SharedQueries(f"recall@{k}", True, values, len(parts[1].items), _cut(view.num_items))


def _cut(items: int) -> int:
    """:attr:`SharedQueries.cut`: a list of nearly all items would have any item."""
    return 0 if items > LIST else max(items // 4, 1)


def _next_items(sequences: Sequences, split: str) -> SharedQueries:
    users, at = sequences.targets(split)
    queries = NextItemSplit(users, sequences.items[at], sequences.indptr[users], at)
    seen = queries.known(sequences.items)
    queried = users, queries.targets, sequences.num_items, seen
    offsets = sequences.user_offset, sequences.item_offset

    def values(system: Any, model: Any, leave_out: LeaveOut, poll: Poll) -> QueryValues:
        repeats, of_items = sequences.repeats, not isinstance(system.evaluator, SequenceEvaluator)
        if of_items and split == "test":
            score = _folded_in(system, model, sequences, users, at)
        else:
            after = _scores(system, model, poll)

            def score(rows: np.ndarray) -> Any:
                scores = after(users[rows], at[rows])
                if of_items and repeats:  # lists of systems of users and items never have what the user has taken
                    scores = scores.clone()
                    scores[seen.of(rows)] = torch.finfo(scores.dtype).min
                return scores

        return next_item_values(score, *queried, offsets, NEXT, leave_out, poll, repeats=repeats)

    return SharedQueries(f"ndcg@{NEXT}", True, values, len(users), _cut(sequences.num_items))


def _folded_in(
    system: Any, model: Any, sequences: Sequences, users: np.ndarray, ends: np.ndarray
) -> Callable[[np.ndarray], Any]:
    """Scores of the items that a system of users and items lists after each user's history up to ``ends``, as it does for
    later interactions: the validation item is known by then. Scores are places from the end of the list; others have 0."""
    starts = sequences.indptr[users]
    indptr = np.concatenate(([0], np.cumsum(ends - starts)))
    histories = Histories(indptr, sequences.items[ranges(starts, ends)], users)
    items = system.fold_in(model, histories, NEXT)[0]

    def score(rows: np.ndarray) -> Any:
        every = torch.zeros(len(rows), sequences.num_items)
        row, place = np.nonzero(items[rows] >= 0)
        every[row, items[rows][row, place]] = torch.from_numpy((NEXT - place).astype(np.float32))
        return every

    return score


def _scores(system: Any, model: Any, poll: Poll) -> Callable[[np.ndarray, np.ndarray], Any]:
    """Users and the ends of their histories → scores of all items; only a system of sequences reads the ends."""
    if isinstance(system.evaluator, SequenceEvaluator):
        return cast(Callable[[np.ndarray, np.ndarray], Any], system.score_at(model, poll))
    scorer = system.scorer(model)
    return lambda users, ends: scorer.score_targets(0, users)


def all_of_them(relation: int, heads: np.ndarray, tails: np.ndarray) -> np.ndarray:
    """No query is left out."""
    return np.zeros(len(heads), bool)
