"""Evaluates recommendation by full ranking: scores all items, masks known ones, and computes metrics of the lists.

It works on blocks of scores of any model. Set metrics (several held-out items per user) follow MMRec's definitions.
``next_item`` ranks single held-out items.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from graphmill.errors import TrainingError
from graphmill.evaluation.ranking.shared_queries import current_share
from graphmill.graph.interactions import CsrPattern
from graphmill.graph.sorted_unique import in_sorted, sorted_unique
from graphmill.sampling.ranges import ranges

if TYPE_CHECKING:
    import torch

Int64 = NDArray[np.int64]
Float = NDArray[np.float64]
ScoreBlock = Callable[[Int64], "torch.Tensor"]
"""Users int64 [b] → scores of all items [b, I], higher is better."""

ExcludeSeen = Literal["auto", "always", "never"]
"""Whether recommendations leave out items that a user already has. auto: yes, unless users of the data repeat items."""

BLOCK_NUMBERS = 4 << 20
"""Number of scores in memory at a time. Few large blocks are best, because scores are read only once, and each block
has fixed costs."""
ACCELERATOR_NUMBERS = 64 << 20
"""The same on an accelerator, which has more memory and higher costs per call."""


@dataclass(frozen=True)
class KnownItems:
    """Items per user as CSR: ``items[indptr[u] : indptr[u + 1]]`` for user u. Repetitions are allowed. ``weights`` float32,
    of each entry, or None."""

    indptr: Int64
    items: Int64
    weights: NDArray[np.float32] | None = None

    def of(self, users: Int64) -> tuple[Int64, Int64]:
        """(row, item) int64 pairs: the items of ``users[row]``."""
        indptr, items = self.rows(users)
        return np.repeat(np.arange(len(users)), np.diff(indptr)), items

    def rows(self, users: Int64) -> tuple[Int64, Int64]:
        """(indptr int64 [U + 1], items int64): the CSR arrays of the given users."""
        start, stop = self.indptr[users], self.indptr[users + 1]
        return np.concatenate(([0], np.cumsum(stop - start))), self.items[ranges(start, stop)]

    def among(self, candidates: Int64, num_items: int) -> KnownItems:
        """The items that are among ``candidates`` (int64, ascending), by their places there."""
        place = np.full(num_items, -1, np.int64)
        place[candidates] = np.arange(len(candidates))
        items = place[self.items]
        left = np.concatenate(([0], np.cumsum(items >= 0)))
        return KnownItems(left[self.indptr], items[items >= 0])


def excluded(seen: KnownItems, disliked: CsrPattern, exclude_seen: bool) -> KnownItems:
    """What no list of a user has: what the user dislikes, and with ``exclude_seen`` what the user has ``seen``."""
    users = len(seen.indptr) - 1
    if not len(disliked):
        return seen if exclude_seen else KnownItems(np.zeros(users + 1, np.int64), np.zeros(0, np.int64))
    if not exclude_seen:
        return KnownItems(disliked.indptr, disliked.columns.astype(np.int64))
    row = np.concatenate((np.repeat(np.arange(users), np.diff(seen.indptr)), disliked.row))
    items: Int64 = np.concatenate((seen.items, disliked.columns.astype(np.int64)))[np.argsort(row, kind="stable")]
    return KnownItems(seen.indptr + disliked.indptr, items)


def top_k(
    score: ScoreBlock, users: Int64, num_items: int, known: KnownItems, k: int, candidates: Int64 | None = None
) -> tuple[Int64, Float]:
    """The ``k`` best items that are new to each user, best first: items int64 [U, k] and scores [U, k].

    −1 and −inf if fewer than ``k`` new items are left. Equal scores are ordered by item number. ``candidates``: int64,
    ascending: the items that can be in a list; by default all.

    Raises :class:`TrainingError` for a score that is not finite.
    """
    if candidates is not None and len(candidates) < num_items:
        import torch

        chosen = torch.from_numpy(candidates)
        some, best = top_k(
            lambda part: (scores := score(part)).index_select(1, chosen.to(scores.device)),
            *(users, len(candidates), known.among(candidates, num_items), k),
        )
        return np.where(some >= 0, np.append(candidates, -1)[some], -1), best
    k = min(k, num_items)
    items, best = np.full((len(users), k), -1, np.int64), np.full((len(users), k), -np.inf)
    for start, stop in blocks(len(users), num_items):
        part = users[start:stop]
        items[start:stop], best[start:stop] = best_of_block(wide(score(part)), k, known.rows(part))
    return items, best


def of_all(count: int, users: Int64, items: Int64, scores: Float) -> tuple[Int64, Float]:
    """The lists of ``count`` users from those of some ``users`` (ascending): the others have −1 and −inf."""
    every, values = np.full((count, items.shape[1]), -1, np.int64), np.full((count, items.shape[1]), -np.inf)
    every[users], values[users] = items, scores
    return every, values


def best_of_block(scores: torch.Tensor, k: int, left_out: tuple[Int64, Int64]) -> tuple[Int64, Float]:
    """:func:`top_k` of rows of scores [B, I], in at least fp32. ``left_out``: as from :meth:`KnownItems.rows`."""
    from graphmill.kernels.top_k import NotFiniteError
    from graphmill.kernels.top_k import top_k as best_of_rows

    try:
        values, items = best_of_rows(scores, k, left_out)
    except NotFiniteError as problem:
        raise TrainingError(DIVERGED) from problem
    best = values.cpu().double().numpy()
    return np.where(np.isfinite(best), items.cpu().numpy(), -1), best


DIVERGED = (
    "scores are not finite: the model has diverged; use an earlier checkpoint, a lower learning rate or precision fp32"
)


def wide(scores: torch.Tensor) -> torch.Tensor:
    """The scores in at least fp32."""
    import torch

    return scores if scores.dtype == torch.float64 else scores.float()


def blocks(rows: int, columns: int) -> list[tuple[int, int]]:
    """Ranges of rows with at most :data:`BLOCK_NUMBERS` scores, or :data:`ACCELERATOR_NUMBERS` on an accelerator."""
    size = max(current_share().at_once(BLOCK_NUMBERS, ACCELERATOR_NUMBERS) // max(columns, 1), 1)
    return [(start, min(start + size, rows)) for start in range(0, rows, size)]


def hits(lists: Int64, indptr: Int64, items: Int64, num_items: int) -> tuple[NDArray[np.bool_], Int64]:
    """bool [Q, K]: whether entries of ``lists`` int64 [Q, K] (−1: none) are held-out items; int64 [Q]: number of these.

    The held-out items of row q are ``items[indptr[q] : indptr[q + 1]]``, each below ``num_items``. Repetitions count once.

    Raises :class:`IndexError` for an item number out of range.
    """
    if max(items.max(initial=-1), lists.max(initial=-1)) >= num_items or items.min(initial=0) < 0:
        raise IndexError(f"an item is not one of the {num_items}")
    row = np.repeat(np.arange(len(lists)), np.diff(indptr))
    keys = sorted_unique(row * np.int64(num_items) + items)
    wanted = np.arange(len(lists))[:, None] * np.int64(num_items) + lists
    return in_sorted(wanted, keys) & (lists >= 0), np.bincount(keys // num_items, minlength=len(lists))


def set_metrics(lists: Int64, held_out: KnownItems, users: Int64, ks: Sequence[int]) -> dict[str, float]:
    """Accuracy metrics @k of ranked lists (int64 [U, K], −1 for none) for each user's held-out items.

    Means over the users with at least one held-out item, by MMRec's definitions: with P held-out items and hit_i,

        recall@k = Σ hit / P                     precision@k = Σ hit / k
        ndcg@k = Σ hit_i / log2(i + 1) / Σ_{i ≤ min(k, P)} 1 / log2(i + 1)
        map@k = Σ hit_i · (hits up to i) / i / min(k, P)
        hit@k = [Σ hit > 0]                      mrr@k = 1 / place of the first hit, 0 without one
    """
    num_items = int(max(lists.max(initial=0), held_out.items.max(initial=0))) + 1
    hit, positives = hits(lists, *held_out.rows(users), num_items)
    of_user = user_metrics(hit[positives > 0], positives[positives > 0], ks)
    return {name: mean(values) for name, values in of_user.items()}


def user_metrics(hit: NDArray[np.bool_], positives: Int64, ks: Sequence[int]) -> dict[str, Float]:
    """The metrics of :func:`set_metrics` of each user, float64 [U], from hits (bool [U, K], best first) and the number of
    held-out items [U]."""
    users = len(hit)
    user, column = np.nonzero(hit)  # each user's best item first
    counts = np.bincount(user, minlength=users)
    begin = np.cumsum(counts) - counts
    precision = (np.arange(len(user)) - begin[user] + 1) / (column + 1)
    first = np.full(users, np.inf)
    first[counts > 0] = column[begin[counts > 0]] + 1.0
    discount = 1.0 / np.log2(np.arange(2, hit.shape[1] + 2))
    ideal = np.concatenate(([0.0], np.cumsum(discount)))
    out: dict[str, Float] = {}
    for k in ks:
        if k > hit.shape[1]:
            raise ValueError(f"@{k} needs lists of at least {k} items, not {hit.shape[1]}")
        reachable, within = np.minimum(positives, k), column < k
        hit_users, at = user[within], column[within]
        hits = np.bincount(hit_users, minlength=users)
        out[f"recall@{k}"] = hits / positives
        out[f"ndcg@{k}"] = np.bincount(hit_users, discount[at], users) / ideal[reachable]
        out[f"precision@{k}"] = hits / k
        out[f"map@{k}"] = np.bincount(hit_users, precision[within], users) / reachable
        reached = first <= k
        out[f"hit@{k}"] = reached.astype(np.float64)
        out[f"mrr@{k}"] = np.where(reached, 1.0 / first, 0.0)
    return out


def mean(values: Float) -> float:
    """The mean; nan for an empty array."""
    return float(values.mean()) if len(values) else float("nan")
