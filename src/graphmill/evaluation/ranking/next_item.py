"""Evaluates next-item prediction by the rank of one held-out item among all items.

A target that ties with others has each of its possible ranks with equal probability, and every metric is an
expectation. So a scorer that gives all items the same score gets the result of chance. Items that the user already has
are not candidates beside a new target. A target that is in its own history (a *repeat*: music, groceries, news) is
ranked among all items instead, because every model would find it if its true competitors were masked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from graphmill.errors import TrainingError
from graphmill.evaluation.ranking.recommendation import DIVERGED, Int64, KnownItems, ScoreBlock, blocks, mean, wide
from graphmill.evaluation.ranking.shared_queries import fill_shared
from graphmill.graph.sorted_unique import sorted_unique


@dataclass(frozen=True)
class NextItemRanks:
    """For each target, the number of other candidates with a higher score, and with the same score (int64 [Q])."""

    above: Int64
    tied: Int64

    def metrics(self, names: Sequence[str], ks: Sequence[int]) -> dict[str, float]:
        """Means of ``hr`` and ``ndcg`` at each k and of ``mrr``, in expectation over ties; ranks count from 1.

        hr@k = P(rank ≤ k);  ndcg@k = E[1 / log2(rank + 1); rank ≤ k];  mrr = E[1 / rank].
        """
        return {name: mean(value) for name, value in self.values(names, ks).items()}

    def values(self, names: Sequence[str], ks: Sequence[int]) -> dict[str, NDArray[np.float64]]:
        """The metrics of :meth:`metrics` for each target [Q], before averaging."""
        deepest = int((self.above + self.tied).max(initial=0)) + 1
        rank = np.arange(1, deepest + 1)
        gains = {"ndcg": 1.0 / np.log2(rank + 1), "hr": np.ones(deepest), "mrr": 1.0 / rank}
        out = {}
        for name, gain in gains.items():
            if name not in names:
                continue
            sums = np.concatenate(([0.0], np.cumsum(gain)))
            for k in (deepest,) if name == "mrr" else ks:
                first = np.minimum(self.above, k)
                last = np.minimum(self.above + self.tied + 1, k)
                value = (sums[np.minimum(last, deepest)] - sums[np.minimum(first, deepest)]) / (self.tied + 1)
                out[name if name == "mrr" else f"{name}@{k}"] = value
        return out

    def take(self, rows: NDArray[np.bool_] | Int64) -> NextItemRanks:
        """The ranks of a selection of the targets."""
        return NextItemRanks(self.above[rows], self.tied[rows])


@dataclass(frozen=True)
class HistoryRanks(NextItemRanks):
    """Ranks with histories: for a target in its user's history, ``above`` and ``tied`` count all items; else those new
    to the user.

    ``unmasked``: the ranks of all targets among all items. ``repeated`` bool [Q]: targets that are in their user's
    history.
    """

    unmasked: NextItemRanks
    repeated: NDArray[np.bool_]


def full_ranks(
    score: ScoreBlock,
    users: Int64,
    targets: Int64,
    num_items: int,
    known: KnownItems,
    *,
    poll: Callable[[], None] = lambda: None,
) -> HistoryRanks:
    """Rank each user's target among the items that are new to the user, or among all items if the user already has the
    target. Blocks are distributed over the processes that evaluate together (:mod:`.shared_queries`)."""
    counts = [np.zeros(len(users), np.int64) for _ in range(5)]

    def fill(start: int, stop: int) -> None:
        of_block = _counts_of_block(score, users[start:stop], targets[start:stop], num_items, known)
        for every, part in zip(counts, of_block, strict=True):
            every[start:stop] = part

    above, tied, known_above, known_tied, repeated = fill_shared(counts, blocks(len(users), num_items), fill, poll)
    new = 1 - repeated
    return HistoryRanks(
        above - new * known_above, tied - new * known_tied, NextItemRanks(above, tied), repeated.astype(bool)
    )


def chosen_ranks(ranks: HistoryRanks, repeats: bool) -> NextItemRanks:
    """The ranks for the main metrics: among all items if users repeat items (``repeats``)."""
    return ranks.unmasked if repeats else ranks


def _counts_of_block(
    score: ScoreBlock, users: Int64, targets: Int64, num_items: int, known: KnownItems
) -> tuple[Int64, ...]:
    """Numbers of other items above and tied with the target, numbers of known items among each, and whether the target
    is known."""
    import torch

    from graphmill.kernels.rank_counts import rank_counts

    scores = wide(score(users))
    device = scores.device
    # The target's score comes from the same product as the other scores, so that it ties exactly with itself.
    target = scores.gather(1, torch.from_numpy(np.ascontiguousarray(targets)).to(device)[:, None])
    above, tied, bad = rank_counts(scores, target[:, 0])
    if int(bad.sum()):
        raise TrainingError(DIVERGED)
    row, item = known.of(users)
    keys = sorted_unique(row * num_items + item)
    row_of_key, is_target = keys // num_items, keys % num_items == targets[keys // num_items]
    repeated = np.bincount(row_of_key[is_target], minlength=len(users))
    keys = keys[~is_target]
    rows = torch.from_numpy(keys // num_items).to(device)
    known_scores = scores[rows, torch.from_numpy(keys % num_items).to(device)]
    target_scores = target[rows, 0]
    known_above = torch.bincount(rows[known_scores > target_scores], minlength=len(users))
    known_tied = torch.bincount(rows[known_scores == target_scores], minlength=len(users))
    return (*(count.cpu().numpy() for count in (above, tied - 1, known_above, known_tied)), repeated)
