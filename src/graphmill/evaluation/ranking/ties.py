"""Computes expected metrics of ranked lists with ties: items of equal score have each order with equal probability.

Only lists with held-out items that tie with others need expectations, which have closed forms. A group of n items with
equal scores, of which p are held out, has the positions s + 1 .. s + n; n and p include items beyond the list. At
position s + 1 + j, with h held-out items in earlier groups:

    P(a held-out item) = p / n
    E[held-out items up to here; one of them here] = p / n · (h + 1 + j (p − 1) / (n − 1))
    P(none up to here | none before the group) = Π_{t ≤ j} 1 − p / (n − t)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Int64 = NDArray[np.int64]
Float = NDArray[np.float64]


@dataclass(frozen=True)
class Ties:
    """The T lists of length K whose hits depend on the order of equal scores.

    ``rows`` int64 [T], ascending: the lists' numbers. ``size``, ``held``, ``within`` int64 [T, K]: for the group of
    equal scores at each position, its number of items, of held-out items, and of positions before this one.
    """

    rows: Int64
    size: Int64
    held: Int64
    within: Int64

    @classmethod
    def of(cls, hit: NDArray[np.bool_], same: NDArray[np.bool_], last: Int64) -> Ties:
        """Find the lists with ties. ``hit`` bool [Q, K]; ``same`` bool [Q, K]: the position has the same score as the
        one before; ``last`` [Q, 2]: if items beyond the list tie with its last position, the number of all items with
        that score and of held-out ones; else 0."""
        rows = np.flatnonzero((same.any(1) | (last[:, 0] > 0)) & (hit.any(1) | (last[:, 1] > 0)))
        count, k = len(rows), hit.shape[1]
        if not count or not k:
            none = np.zeros((0, k), np.int64)
            return cls(rows[:0], none, none, none)
        group = np.cumsum(~same[rows], axis=1) - 1 + np.arange(count)[:, None] * k
        size = np.bincount(group.ravel(), minlength=count * k)
        held = np.bincount(group.ravel(), hit[rows].ravel(), minlength=count * k).astype(np.int64)
        first = np.full(count * k, k, np.int64)
        np.minimum.at(first, group.ravel(), np.tile(np.arange(k), count))
        further = last[rows, 0] > 0
        size[group[further, -1]], held[group[further, -1]] = last[rows[further]].T
        mixed = ((held > 0) & (held < size)).reshape(count, k).any(1)
        group = group[mixed]
        return cls(rows[mixed], size[group], held[group], np.arange(k) - first[group])

    def metrics(self, positives: Int64, ks: Sequence[int]) -> dict[str, Float]:
        """The expected metrics of ``recommendation.set_metrics`` at each k, for each list, float64 [T].

        ``positives`` int64 [T]: number of held-out items of each list's user.
        """
        size, held, within = self.size, self.held, self.within
        place = np.arange(1, size.shape[1] + 1)
        share = held / size
        sums = np.concatenate((np.zeros((len(share), 1)), np.cumsum(share, axis=1)), axis=1)
        before = np.take_along_axis(sums, place - 1 - within, axis=1)
        precision = share * (before + 1 + within * (held - 1) / np.maximum(size - 1, 1)) / place
        chance = np.minimum(held / (size - within), 1.0)  # probability of a hit here without one before
        without = np.cumprod(1.0 - chance, axis=1)
        first = np.concatenate((np.ones((len(size), 1)), without[:, :-1]), axis=1) * chance
        discount = 1.0 / np.log2(place + 1)
        ideal = np.concatenate(([0.0], np.cumsum(discount)))
        out = {}
        for k in ks:
            reachable, hits = np.minimum(positives, k), share[:, :k].sum(1)
            out[f"recall@{k}"] = hits / positives
            out[f"ndcg@{k}"] = (share * discount)[:, :k].sum(1) / ideal[reachable]
            out[f"precision@{k}"] = hits / k
            out[f"map@{k}"] = precision[:, :k].sum(1) / reachable
            out[f"hit@{k}"] = 1.0 - without[:, k - 1]
            out[f"mrr@{k}"] = (first / place)[:, :k].sum(1)
        return out
