"""Next-item prediction measured: the rank of one held-out item, among all items or among a fixed sample of them.

Ties are counted, not broken: a target that ties with others has each of the ranks that it could have with equal
probability, and every metric is its expectation. A scorer that says the same of all items gets what chance gets.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from graphmill.errors import TrainingError
from graphmill.evaluation.ranking.recommendation import DIVERGED, Int64, KnownItems, ScoreBlock, blocks, usable, wide
from graphmill.evaluation.ranking.sharing import current_share
from graphmill.graph.sorted_unique import sorted_unique
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
    return _shared_ranks(
        len(users), num_items, lambda part: _ranks_of_block(score, users[part], targets[part], num_items, known), poll
    )


def sample_candidates(
    users: Int64, targets: Int64, num_items: int, known: KnownItems, count: int, *, seed: int, name: str
) -> Int64:
    """The fixed table of the sampled protocol: int64 [Q, count] items that are neither the target nor known.

    Drawn uniformly with replacement, keyed by ``seed`` and ``name``, the same for every model. −1 where a user knows all.
    """
    from graphmill.sampling.negatives import corrupt_tails

    rows = np.arange(len(users))
    row, item = known.of(users)
    keys = sorted_unique(np.concatenate([row * num_items + item, rows * num_items + targets]))
    return corrupt_tails(generator(seed, "sampled protocol", name), rows, keys, num_items, count)


def sampled_ranks(score: ScoreBlock, users: Int64, targets: Int64, candidates: Int64, num_items: int) -> NextItemRanks:
    """Rank each user's target among its row of ``candidates`` (int64 [Q, m], −1 for none)."""
    return _shared_ranks(
        len(users), num_items, lambda part: _sampled_block(score, users[part], targets[part], candidates[part])
    )


def _shared_ranks(
    queries: int,
    num_items: int,
    of_block: Callable[[slice], tuple[Int64, Int64]],
    poll: Callable[[], None] = lambda: None,
) -> NextItemRanks:
    """Blocks of queries are dealt out to the processes that evaluate together (``sharing``)."""
    above, tied = np.zeros(queries, np.int64), np.zeros(queries, np.int64)
    share, error = current_share(), None
    for start, stop in blocks(queries, num_items):
        if not share.takes_next() or error is not None:
            continue
        poll()
        part = slice(start, stop)
        try:
            above[part], tied[part] = of_block(part)
        except TrainingError as problem:
            error = problem
    merged = share.merge([above, tied], error)
    return NextItemRanks(merged[0], merged[1])  # type: ignore[arg-type]


def _ranks_of_block(
    score: ScoreBlock, users: Int64, targets: Int64, num_items: int, known: KnownItems
) -> tuple[Int64, Int64]:
    import torch

    from graphmill.kernels.rank_counts import rank_counts

    scores = wide(score(users))
    device = scores.device
    # The target's score comes from the same product as its rivals', so that it ties with itself exactly.
    target = scores.gather(1, torch.from_numpy(np.ascontiguousarray(targets)).to(device)[:, None])
    above, tied, bad = rank_counts(scores, target[:, 0])
    if int(bad.sum()):
        raise TrainingError(DIVERGED)
    tied -= 1
    row, item = known.of(users)
    keys = sorted_unique(row * num_items + item)
    keys = keys[keys % num_items != targets[keys // num_items]]
    rows = torch.from_numpy(keys // num_items).to(device)
    known_scores = scores[rows, torch.from_numpy(keys % num_items).to(device)]
    own = target[rows, 0]
    above -= torch.bincount(rows[known_scores > own], minlength=len(users))
    tied -= torch.bincount(rows[known_scores == own], minlength=len(users))
    return above.cpu().numpy(), tied.cpu().numpy()


def _sampled_block(score: ScoreBlock, users: Int64, targets: Int64, candidates: Int64) -> tuple[Int64, Int64]:
    import torch

    scores = usable(score(users))
    target = scores.gather(1, torch.from_numpy(np.ascontiguousarray(targets)).to(scores.device)[:, None])
    table = torch.from_numpy(np.ascontiguousarray(candidates)).to(scores.device)
    there = table >= 0
    others = scores.gather(1, table.clamp(min=0))
    return ((others > target) & there).sum(1).cpu().numpy(), ((others == target) & there).sum(1).cpu().numpy()
