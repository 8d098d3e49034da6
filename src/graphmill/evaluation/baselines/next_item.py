"""Next-item predictors in closed form, tuned on validation.

There is popularity, of all time or of the last days; a first-order Markov chain with a back-off to popularity; item-kNN
by cosine over the last items;
and, if users repeat items, the repeats of the user's own history. All are fitted on training interactions only. The
history for a prediction may include the validation item. They are systems (``systems/next_item``), and baselines of the
sequence models.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from graphmill.evaluation.baselines.recommendation import (
    ItemBaseline,
    best_setting,
    nearest_items,
    scores_of,
    tensor_of,
)
from graphmill.evaluation.ranking.next_item import HistoryRanks, chosen_ranks, full_ranks
from graphmill.evaluation.ranking.recommendation import Int64, KnownItems, ScoreBlock
from graphmill.sampling.ranges import ranges

if TYPE_CHECKING:
    import torch

BACK_OFFS = (0.001, 0.01, 0.1, 1.0)
NEIGHBOURS = (0, 100)
"""0: all of them."""
HISTORIES = (1, 3, 5, 10)
DECAYS = (1.0, 0.95, 0.8, 0.5)
DAYS = (1, 7, 30, 365)
"""Popularity counts the interactions of so many days before the last training interaction, or all."""
FAMILIES = ("popularity", "markov", "session_knn", "repeats")
_REPEATED = 200
"""Number of last interactions whose repeats count."""
_DENSE_ITEMS = 10_000


@dataclass(frozen=True)
class NextItemSplit:
    """One split: ``users`` with a target, the ``targets``, and the range of each user's history in the flat ``items``.

    ``start``, ``stop`` int64 [Q]: the history of query q is ``items[start[q] : stop[q]]``, oldest first.
    """

    users: Int64
    targets: Int64
    start: Int64
    stop: Int64

    def take(self, rows: Int64) -> NextItemSplit:
        """A selection of the queries."""
        return NextItemSplit(self.users[rows], self.targets[rows], self.start[rows], self.stop[rows])

    def history(self, items: Int64, length: int, rows: slice | Int64) -> tuple[Int64, Int64]:
        """(row, item) pairs of the last ``length`` items of each of the queries ``rows``."""
        start, stop = np.maximum(self.start[rows], self.stop[rows] - length), self.stop[rows]
        return np.repeat(np.arange(len(start)), stop - start), items[ranges(start, stop)]

    @property
    def known(self) -> Callable[[Int64], KnownItems]:
        """The complete histories as :class:`KnownItems` by query number, from the flat items."""
        counts = self.stop - self.start
        indptr = np.concatenate(([0], np.cumsum(counts)))
        return lambda items: KnownItems(indptr, self.history(items, int(counts.max(initial=0)), slice(None))[1])


@dataclass(eq=False)
class NextItemBaselines:
    """The predictors, fitted on training interactions ``users``, ``items`` (in order within a user), with ``times`` in
    seconds if there are any.

    ``repeats``: users repeat items, so histories are not masked, and repeats are one of the predictors.
    """

    users: Int64
    items: Int64
    num_users: int
    num_items: int
    _: KW_ONLY
    times: Int64 | None = None
    repeats: bool = False
    _nearest: dict[int, Any] = field(default_factory=dict, init=False)

    @cached_property
    def popularity(self) -> NDArray[np.float32]:
        """float32 [I]: training counts."""
        return np.bincount(self.items, minlength=self.num_items).astype(np.float32)

    @cached_property
    def transitions(self) -> sp.csr_matrix:
        """Sparse [I, I]: P(next | last), from all pairs of successive interactions of a user."""
        same = self.users[1:] == self.users[:-1]
        pairs = self.items[:-1][same], self.items[1:][same]
        steps = sp.csr_matrix((np.ones(int(same.sum()), np.float32), pairs), (self.num_items, self.num_items))
        total = np.maximum(np.asarray(steps.sum(1)).ravel(), 1.0)
        return sp.csr_matrix(sp.diags_array((1.0 / total).astype(np.float32)) @ steps)

    @cached_property
    def cosine(self) -> sp.csr_matrix:
        """Sparse [I, I]: cosine of the items' users, 0 on the diagonal."""
        ones = np.ones(len(self.items), np.float32)
        met = sp.csr_matrix((ones, (self.users, self.items)), (self.num_users, self.num_items))
        met.data[:] = 1.0
        norm = np.sqrt(np.maximum(np.asarray(met.multiply(met).sum(0)).ravel(), 1.0))
        unit = met @ sp.diags_array((1.0 / norm).astype(np.float32))
        result = sp.csr_matrix(unit.T @ unit)
        result.setdiag(0.0)
        result.eliminate_zeros()
        return result

    def popularity_scores(self, split: NextItemSplit, items: Int64, days: int = 0) -> ScoreBlock:
        """The training counts, the same for every user: of the last ``days``, then of all time; 0: of all time."""
        counts = self.popularity
        if days and self.times is not None:
            late = self.times > self.times.max() - days * 86_400
            recent = np.bincount(self.items[late], minlength=self.num_items)
            counts = (recent + counts / (counts.sum() + 1.0)).astype(np.float32)
        return lambda rows: tensor_of(np.broadcast_to(counts, (len(rows), self.num_items)))

    def markov_scores(self, split: NextItemSplit, items: Int64, back_off: float) -> ScoreBlock:
        """:func:`markov_scores`."""
        return markov_scores(self.transitions, self.popularity, split, items, back_off)

    def knn_scores(self, split: NextItemSplit, items: Int64, neighbours: int, history: int) -> ScoreBlock:
        """:func:`recent_scores`, over the ``neighbours`` nearest of each item."""
        return recent_scores(self.neighbours(neighbours), split, items, history)

    def repeat_scores(self, split: NextItemSplit, items: Int64, decay: float) -> ScoreBlock:
        """:func:`repeat_scores`."""
        return repeat_scores(self.popularity, split, items, decay)

    def neighbours(self, count: int) -> Any:
        """The cosine to the ``count`` nearest of each item, 0: all. The matrix is dense if it is small and the sparse one
        would be nearly full."""
        if count not in self._nearest:
            self._nearest[count] = compact(self.cosine if count == 0 else nearest_items(self.cosine, count).T.tocsr())
        return self._nearest[count]


def compact(weights: sp.csr_matrix) -> Any:
    """The matrix [I, I], as a dense array if it is small and nearly full."""
    crowded = weights.nnz > 0.02 * weights.shape[0] ** 2 and weights.shape[0] <= _DENSE_ITEMS
    return weights.toarray() if crowded else weights


def markov_scores(
    transitions: sp.csr_matrix, popularity: NDArray[np.float32], split: NextItemSplit, items: Int64, back_off: float
) -> ScoreBlock:
    """P(next | last item) + back-off · P(item)."""
    share = back_off * popularity / max(float(popularity.sum()), 1.0)
    return lambda rows: tensor_of(transitions[items[split.stop[rows] - 1]].toarray() + share)


def recent_scores(weights: Any, split: NextItemSplit, items: Int64, history: int) -> ScoreBlock:
    """Σ of ``weights`` [I, I] over the last ``history`` items."""

    def score(rows: Int64) -> torch.Tensor:
        row, item = split.history(items, history, rows)
        recent = sp.csr_matrix((np.ones(len(row), np.float32), (row, item)), (len(rows), weights.shape[0]))
        return scores_of(recent, weights)

    return score


def repeat_scores(popularity: NDArray[np.float32], split: NextItemSplit, items: Int64, decay: float) -> ScoreBlock:
    """Σ decay ^ (interactions since) over the user's interactions with the item; other items are ordered by
    popularity."""
    share = 1e-6 * popularity / max(float(popularity.sum()), 1.0)

    def score(rows: Int64) -> torch.Tensor:
        row, item = split.history(items, _REPEATED, rows)
        since = np.cumsum(np.bincount(row, minlength=len(rows)))[row] - 1 - np.arange(len(row))
        weight = (decay**since).astype(np.float32)
        return tensor_of(sp.csr_matrix((weight, (row, item)), (len(rows), len(popularity))).toarray() + share)

    return score


MakeScores = Callable[[NextItemSplit], ScoreBlock]


def tune_baselines(
    baselines: NextItemBaselines,
    valid: NextItemSplit,
    items: Int64,
    *,
    wanted: Sequence[str] = FAMILIES,
) -> dict[str, ItemBaseline]:
    """Tune each ``wanted`` predictor by NDCG@10 on ``valid``; "repeats" only if users repeat items."""
    families: dict[str, dict[str, MakeScores]] = {
        "popularity": {
            f"days {d or 'all'}": partial(baselines.popularity_scores, items=items, days=d)
            for d in ((0, *DAYS) if baselines.times is not None else (0,))
        },
        "markov": {f"back-off {b}": partial(baselines.markov_scores, items=items, back_off=b) for b in BACK_OFFS},
        "session_knn": {
            f"neighbours {n or 'all'}, history {h}": partial(baselines.knn_scores, items=items, neighbours=n, history=h)
            for n in NEIGHBOURS
            for h in HISTORIES
        },
    }
    if baselines.repeats:
        families["repeats"] = {f"decay {d}": partial(baselines.repeat_scores, items=items, decay=d) for d in DECAYS}

    def value(make: MakeScores) -> float:
        ranks = chosen_ranks(baseline_ranks(baselines, make, valid, items), baselines.repeats)
        return ranks.metrics(["ndcg"], [10])["ndcg@10"]

    result = {family: best_setting(families[family], value) for family in wanted if family in families}
    return {family: ItemBaseline(best, families[family][best]) for family, best in result.items()}


def baseline_ranks(
    baselines: NextItemBaselines, make: MakeScores, requested: NextItemSplit, items: Int64
) -> HistoryRanks:
    """The ranks of a predictor on a split, by full ranking."""
    queries = np.arange(len(requested.users))
    return full_ranks(make(requested), queries, requested.targets, baselines.num_items, requested.known(items))
