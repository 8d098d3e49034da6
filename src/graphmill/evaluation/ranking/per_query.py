"""Computes a metric for each query, so that two models can be compared on the same queries.

The queries are a split of a graph. Queries to leave out are given by global node numbers. Other modules choose the
models and draw the conclusions.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from graphmill.errors import InputError
from graphmill.evaluation.ranking.items import rank_items
from graphmill.evaluation.ranking.links import LinkRanking, rank_links
from graphmill.evaluation.ranking.next_item import chosen_ranks, full_ranks
from graphmill.evaluation.ranking.paired_difference import grouped_mean
from graphmill.evaluation.ranking.queries import LinkQueries
from graphmill.evaluation.ranking.ranks import Scorer
from graphmill.evaluation.ranking.recommendation import Int64, KnownItems, ScoreBlock
from graphmill.graph.sorted_unique import sorted_unique

LeaveOut = Callable[[int, Int64, Int64], NDArray[np.bool_]]
"""Relation numbers and global node numbers of heads and tails, int64 [Q] each → bool [Q]: queries to leave out."""
_METRIC = re.compile(r"(\w+?)(?:@(\d+))?")
LINK_METRICS = {"mrr": False, "hits": True}
"""Name → whether it has a k."""


@dataclass(frozen=True)
class QueryValues:
    """``values`` float64 [Q]: ``metric`` (higher is better) of each query.

    ``groups`` int64 [Q]: the overall metric is the mean over groups of the mean within each. ``units`` int64 [Q]:
    dependent queries have the same unit. ``left_out``: number of queries that were left out.
    """

    metric: str
    values: NDArray[np.float64]
    groups: Int64
    units: Int64
    left_out: int

    @property
    def mean(self) -> float:
        """The overall metric; nan without a query."""
        return grouped_mean(self.values, self.groups) if len(self.values) else float("nan")


def parse_metric(metric: str) -> tuple[str, int]:
    """``"hits@20"`` → ("hits", 20); k is 0 if the metric has none. Raises :class:`InputError` for an unknown metric."""
    match = _METRIC.fullmatch(metric)
    name, k = (match[1], int(match[2] or 0)) if match else (metric, 0)
    if name not in LINK_METRICS or (k > 0) != LINK_METRICS[name]:
        examples = ", ".join(f"{each}@10" if cut else each for each, cut in LINK_METRICS.items())
        raise InputError(f"metric '{metric}' is not measured for each query; {examples} are")
    return name, k


def values_of(ranking: LinkRanking, metric: str) -> tuple[NDArray[np.float64], Int64]:
    """``mrr`` or ``hits@k`` of each query of a ranking, in order, and the number of its relation: float64, int64 [Q]."""
    name, k = parse_metric(metric)
    parts = [relation.reciprocal for relation in ranking.relations]
    values = np.concatenate([np.zeros(0), *parts])
    groups = np.repeat(np.array([r.relation for r in ranking.relations], np.int64), [len(part) for part in parts])
    return values if name == "mrr" else (values * k >= 1 - 1e-9).astype(np.float64), groups


def link_values(
    scorer: Scorer,
    queries: LinkQueries,
    offsets: Sequence[tuple[int, int]],
    metric: str,
    leave_out: LeaveOut,
) -> QueryValues:
    """Reciprocal rank (``mrr``) or ``hits@k`` of each link, from the realistic rank among all candidates that are not
    known links; one group per relation.

    ``offsets``: by relation number, the global numbers of the first head and tail.
    """
    parse_metric(metric)
    kept, units, left = [], [np.zeros(0, np.int64)], 0
    for relation in queries.relations:
        first, second = offsets[relation.relation]
        heads, tails = relation.heads + first, relation.targets + second
        ranked = ~leave_out(relation.relation, heads, tails)
        left += int((~ranked).sum())
        kept.append(replace(relation, heads=relation.heads[ranked], tails=relation.tails[ranked]))
        low, high = np.minimum(heads, tails)[ranked], np.maximum(heads, tails)[ranked]
        units.append((low << 32) | high)
    values, groups = values_of(rank_links(scorer, LinkQueries(queries.split, tuple(kept))), metric)
    return QueryValues(metric, values, groups, np.concatenate(units), left)


def list_values(
    score: ScoreBlock,
    num_items: int,
    known: KnownItems,
    held_out: KnownItems,
    offsets: tuple[int, int],
    k: int,
    leave_out: LeaveOut,
    poll: Callable[[], None] = lambda: None,
) -> QueryValues:
    """``recall@k`` of each user's list. A held-out item that is left out counts as known.

    ``offsets``: the global numbers of the first user and item.
    """
    users = np.repeat(np.arange(len(held_out.indptr) - 1), np.diff(held_out.indptr))
    out = leave_out(0, users + offsets[0], held_out.items + offsets[1])
    if out.any():
        known = _csr(
            np.concatenate((np.repeat(np.arange(len(known.indptr) - 1), np.diff(known.indptr)), users[out])),
            np.concatenate((known.items, held_out.items[out])),
            len(held_out.indptr) - 1,
            num_items,
        )
        held_out = _csr(users[~out], held_out.items[~out], len(held_out.indptr) - 1, num_items)
    lists = rank_items(score, num_items, known, held_out, k, poll=poll)
    if lists.hit.shape[1] < k:
        raise InputError(f"metric 'recall@{k}': there are only {lists.hit.shape[1]} items to rank")
    none = np.zeros(len(lists.users), np.int64)
    return QueryValues(f"recall@{k}", lists.by_user("recall", k), none, lists.users, int(out.sum()))


def next_item_values(
    score: ScoreBlock,
    users: Int64,
    targets: Int64,
    num_items: int,
    known: KnownItems,
    offsets: tuple[int, int],
    k: int,
    leave_out: LeaveOut,
    poll: Callable[[], None] = lambda: None,
    *,
    repeats: bool = False,
) -> QueryValues:
    """``ndcg@k`` of each user's next item, among all items that are new to the user.

    ``repeats``: among all items, including the history, because users repeat items. ``score`` and ``known`` take row
    numbers of the queries, as in :func:`full_ranks`.
    """
    out = leave_out(0, users + offsets[0], targets + offsets[1])
    ranked = np.flatnonzero(~out)
    ranks = chosen_ranks(full_ranks(score, ranked, targets[ranked], num_items, known, poll=poll), repeats)
    values = ranks.values(["ndcg"], [k])[f"ndcg@{k}"]
    return QueryValues(f"ndcg@{k}", values, np.zeros(len(ranked), np.int64), users[ranked], int(out.sum()))


def _csr(rows: Int64, items: Int64, num_rows: int, num_items: int) -> KnownItems:
    keys = sorted_unique(rows.astype(np.int64) * num_items + items)
    return KnownItems(np.searchsorted(keys, np.arange(num_rows + 1, dtype=np.int64) * num_items), keys % num_items)
