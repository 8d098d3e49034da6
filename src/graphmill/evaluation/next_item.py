"""Next-item prediction measured: the rank of one held-out item, among all items or among a fixed sample of them.

Ties are counted, not broken: a target that ties with others has each of the ranks that it could have with equal
probability, and every metric is its expectation. A scorer that says the same of all items gets what chance gets.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from graphmill.evaluation.recommendation import Int64, KnownItems, ScoreBlock, blocks, usable
from graphmill.sampling.keyed import generator


@dataclass(frozen=True)
class NextItemRanks:
    """For each target: other candidates that score higher, and that score the same (int64 [Q])."""

    above: Int64
    tied: Int64

    def metrics(self, names: Sequence[str], ks: Sequence[int]) -> dict[str, float]:
        """Means of ``hr`` and ``ndcg`` at each k and of ``mrr``, in expectation over ties; ranks count from 1.

        hr@k = P(rank ≤ k);  ndcg@k = E[1 / log2(rank + 1); rank ≤ k];  mrr = E[1 / rank].
        """
        deepest = int((self.above + self.tied).max(initial=0)) + 1
        rank = np.arange(1, deepest + 1)
        gains = {"ndcg": 1.0 / np.log2(rank + 1), "hr": np.ones(deepest), "mrr": 1.0 / rank}
        out = {}
        for name in ("ndcg", "hr", "mrr"):
            if name not in names:
                continue
            sums = np.concatenate(([0.0], np.cumsum(gains[name])))
            for k in (deepest,) if name == "mrr" else ks:
                first = np.minimum(self.above, k)
                last = np.minimum(self.above + self.tied + 1, k)
                value = (sums[np.minimum(last, deepest)] - sums[np.minimum(first, deepest)]) / (self.tied + 1)
                out[name if name == "mrr" else f"{name}@{k}"] = float(value.mean()) if len(value) else float("nan")
        return out

    def take(self, rows: NDArray[np.bool_] | Int64) -> NextItemRanks:
        """The ranks of some targets."""
        return NextItemRanks(self.above[rows], self.tied[rows])


def full_ranks(
    score: ScoreBlock,
    users: Int64,
    targets: Int64,
    num_items: int,
    known: KnownItems,
    *,
    poll: Callable[[], None] = lambda: None,
) -> NextItemRanks:
    """Rank each user's target among all items that the user does not know; the target itself is never masked."""
    import torch

    above, tied = np.zeros(len(users), np.int64), np.zeros(len(users), np.int64)
    for start, stop in blocks(len(users), num_items):
        poll()
        scores = usable(score(users[start:stop]))
        device = scores.device
        own = torch.from_numpy(np.ascontiguousarray(targets[start:stop])).to(device)
        # The target's score comes from the same product as its rivals', so that it ties with itself exactly.
        target = scores.gather(1, own[:, None])
        row, item = known.of(users[start:stop])
        keys = np.unique(row * num_items + item)
        keys = keys[keys % num_items != targets[start:stop][keys // num_items]]
        rows = torch.from_numpy(keys // num_items).to(device)
        known_scores = scores[rows, torch.from_numpy(keys % num_items).to(device)]
        higher = (scores > target).sum(1) - torch.bincount(rows[known_scores > target[rows, 0]], minlength=len(own))
        equal = (scores == target).sum(1) - 1
        equal -= torch.bincount(rows[known_scores == target[rows, 0]], minlength=len(own))
        above[start:stop], tied[start:stop] = higher.cpu().numpy(), equal.cpu().numpy()
    return NextItemRanks(above, tied)


def sample_candidates(
    users: Int64, targets: Int64, num_items: int, known: KnownItems, count: int, *, seed: int, name: str
) -> Int64:
    """The fixed table of the sampled protocol: int64 [Q, count] items that are neither the target nor known.

    Drawn uniformly with replacement, keyed by ``seed`` and ``name``, the same for every model. −1 where a user knows all.
    """
    from graphmill.sampling.negatives import corrupt_tails

    rows = np.arange(len(users))
    row, item = known.of(users)
    keys = np.unique(np.concatenate([row * num_items + item, rows * num_items + targets]))
    return corrupt_tails(generator(seed, "sampled protocol", name), rows, keys, num_items, count)


def sampled_ranks(score: ScoreBlock, users: Int64, targets: Int64, candidates: Int64, num_items: int) -> NextItemRanks:
    """Rank each user's target among its row of ``candidates`` (int64 [Q, m], −1 for none)."""
    import torch

    above, tied = np.zeros(len(users), np.int64), np.zeros(len(users), np.int64)
    for start, stop in blocks(len(users), num_items):
        scores = usable(score(users[start:stop]))
        target = scores.gather(1, torch.from_numpy(targets[start:stop, None].copy()).to(scores.device))
        table = torch.from_numpy(np.ascontiguousarray(candidates[start:stop])).to(scores.device)
        there = table >= 0
        others = scores.gather(1, table.clamp(min=0))
        above[start:stop] = ((others > target) & there).sum(1).cpu().numpy()
        tied[start:stop] = ((others == target) & there).sum(1).cpu().numpy()
    return NextItemRanks(above, tied)
