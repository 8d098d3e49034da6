"""Recommenders measured: every item is ranked for every user with held-out items, and the lists are held against them.

Accuracy follows MMRec's definitions (``recommendation.hit_metrics``); beside it how much of the catalogue the lists cover
and how popular what they hold is. KGAT's own NDCG is here too, under a name of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from graphmill.errors import TrainingError
from graphmill.evaluation.ranking.recommendation import Int64, KnownItems, ScoreBlock, blocks, hit_metrics, top_k
from graphmill.evaluation.ranking.sharing import current_share
from graphmill.graph.sorted_unique import sorted_unique
from graphmill.kernels.hits import hits

METRICS = ("recall", "ndcg", "precision", "map", "hit", "mrr")
KGAT_LIST = 100
"""Length of the list that KGAT's NDCG takes its ideal from."""


@dataclass(frozen=True)
class ItemLists:
    """The best items of Q users with held-out items, best first.

    ``items`` int64 [Q, K], −1 where none is left; ``hit`` bool [Q, K]; ``positives`` int64 [Q]: held-out items.
    """

    users: Int64
    items: Int64
    hit: NDArray[np.bool_]
    positives: Int64

    def metrics(self, names: Sequence[str], ks: Sequence[int]) -> dict[str, float]:
        """Means over the users of the metrics ``names`` (of :data:`METRICS`, and ``ndcg_kgat``) at each k."""
        found = hit_metrics(self.hit, self.positives, ks) | _kgat_ndcg(self.hit, ks if "ndcg_kgat" in names else ())
        return {f"{name}@{k}": found[f"{name}@{k}"] for name in names for k in ks}

    def by_user(self, name: str, k: int) -> NDArray[np.float64]:
        """One metric for each user [Q]: what paired comparisons are made of."""
        return np.array(
            [hit_metrics(h[None], p[None], [k])[f"{name}@{k}"] for h, p in zip(self.hit, self.positives, strict=True)]
        )

    def catalogue(self, popularity: Int64, held_out: KnownItems, ks: Sequence[int]) -> dict[str, float]:
        """What the lists consist of.

        coverage@k: part of all items that is in any list; popularity_bias@k: mean training interactions of the items
        recommended over that of the items held out (above 1: more popular than what users take).
        """
        _, wanted = held_out.of(self.users)
        usual = float(popularity[wanted].mean()) if len(wanted) else float("nan")
        out = {}
        for k in ks:
            shown = self.items[:, :k]
            shown = shown[shown >= 0]
            out[f"coverage@{k}"] = len(sorted_unique(shown)) / len(popularity)
            mean = float(popularity[shown].mean()) if len(shown) else float("nan")
            out[f"popularity_bias@{k}"] = mean / usual if usual else float("nan")
        return out

    def take(self, rows: NDArray[np.bool_] | Int64) -> ItemLists:
        """The lists of some of the users."""
        return ItemLists(self.users[rows], self.items[rows], self.hit[rows], self.positives[rows])


def rank_items(
    score: ScoreBlock,
    num_items: int,
    known: KnownItems,
    held_out: KnownItems,
    k: int,
    *,
    users: Int64 | None = None,
    poll: Callable[[], None] = lambda: None,
) -> ItemLists:
    """Lists of the ``k`` best items that the users do not know, for all users with held-out items (or those of ``users``).

    Blocks of users are dealt out to the processes that evaluate together (``sharing``). Equal scores rank by item number.

    Raises :class:`TrainingError` for a score that is not finite.
    """
    asked = np.flatnonzero(np.diff(held_out.indptr) > 0)
    asked = asked if users is None else np.intersect1d(asked, users)
    k = min(k, num_items)
    items = np.zeros((len(asked), k), np.int64)
    share, error = current_share(), None
    for start, stop in blocks(len(asked), num_items):
        if not share.takes_next() or error is not None:
            continue
        poll()
        try:
            items[start:stop] = top_k(score, asked[start:stop], num_items, known, k)[0]
        except TrainingError as problem:
            error = problem
    (merged,) = share.merge([items], error)
    items = merged.astype(np.int64)
    return ItemLists(asked, items, *hits(items, *held_out.rows(asked), num_items))


def _kgat_ndcg(hit: NDArray[np.bool_], ks: Sequence[int]) -> dict[str, float]:
    """NDCG with the ideal order of what was *retrieved* (Wang et al. 2019, its code): hits of a list of 100, moved up.

    Never below the standard one for lists this long; for comparison with KGAT's publication and nothing else.
    """
    if not ks:
        return {}
    depth = min(max(KGAT_LIST, *ks), hit.shape[1])
    discount = 1.0 / np.log2(np.arange(2, depth + 2))
    ideal = np.concatenate(([0.0], np.cumsum(discount)))
    retrieved = hit[:, :depth].sum(1)
    out = {}
    for k in ks:
        gain = (hit[:, :k] * discount[:k]).sum(1)
        best = ideal[np.minimum(retrieved, k)]
        out[f"ndcg_kgat@{k}"] = float(np.divide(gain, best, out=np.zeros(len(hit)), where=best > 0).mean())
    return out
