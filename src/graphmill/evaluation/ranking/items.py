"""Evaluates recommenders: ranks all items for every user with held-out items, and computes metrics of the lists.

Accuracy follows MMRec's definitions (``recommendation.set_metrics``). Other metrics are the lists' coverage of the
catalogue and the popularity of their items. KGAT's variant of NDCG has its own name. Accuracy is the expectation over
all orders of equal scores (``ties``). So a scorer that gives all items the same score gets the result of chance,
however the items are numbered. The lists themselves order equal scores by item number.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from graphmill.evaluation.ranking.recommendation import (
    Float,
    Int64,
    KnownItems,
    ScoreBlock,
    best_of_block,
    blocks,
    hits,
    mean,
    user_metrics,
    wide,
)
from graphmill.evaluation.ranking.shared_queries import fill_shared
from graphmill.evaluation.ranking.ties import Ties
from graphmill.graph.sorted_unique import in_sorted, sorted_unique

if TYPE_CHECKING:
    import torch

METRICS = ("recall", "ndcg", "precision", "map", "hit", "mrr")


@dataclass(frozen=True)
class ItemLists:
    """The best items of Q users with held-out items, best first.

    ``items`` int64 [Q, K], −1 if no item is left; ``hit`` bool [Q, K]; ``positives`` int64 [Q]: number of held-out
    items; ``ties``: the lists whose hits depend on the order of equal scores.
    """

    users: Int64
    items: Int64
    hit: NDArray[np.bool_]
    positives: Int64
    ties: Ties | None = None

    def metrics(self, names: Sequence[str], ks: Sequence[int]) -> dict[str, float]:
        """Means over the users of the metrics ``names`` (of :data:`METRICS`) at each k."""
        values = self._by_user(ks)
        return {f"{name}@{k}": mean(values[f"{name}@{k}"]) for name in names for k in ks}

    def by_user(self, name: str, k: int) -> Float:
        """One metric for each user, float64 [Q], for paired comparisons."""
        return self._by_user([k])[f"{name}@{k}"]

    def _by_user(self, ks: Sequence[int]) -> dict[str, Float]:
        values = user_metrics(self.hit, self.positives, ks)
        if self.ties is not None and len(self.ties.rows):
            for name, expected in self.ties.metrics(self.positives[self.ties.rows], ks).items():
                values[name][self.ties.rows] = expected
        return values

    def catalogue(self, popularity: Int64, held_out: KnownItems, ks: Sequence[int]) -> dict[str, float]:
        """Metrics of the items in the lists (coverage, popularity).

        coverage@k: fraction of all items that are in any list. popularity_bias@k: mean number of training interactions
        of the recommended items, divided by that of the held-out items (above 1: more popular than the items that users
        choose).
        """
        _, wanted = held_out.of(self.users)
        usual = float(popularity[wanted].mean()) if len(wanted) else float("nan")
        out = {}
        for k in ks:
            listed = self.items[:, :k]
            listed = listed[listed >= 0]
            out[f"coverage@{k}"] = len(sorted_unique(listed)) / len(popularity)
            mean = float(popularity[listed].mean()) if len(listed) else float("nan")
            out[f"popularity_bias@{k}"] = mean / usual if usual else float("nan")
        return out


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
    """Lists of the ``k`` best items that are new to each user, for all users with held-out items (or those in ``users``).

    Blocks of users are distributed over the processes that evaluate together (:mod:`.shared_queries`).

    Raises :class:`TrainingError` for a score that is not finite.
    """
    queried = np.flatnonzero(np.diff(held_out.indptr) > 0)
    queried = queried if users is None else np.intersect1d(queried, users)
    k = min(k, num_items)
    items, same = np.zeros((len(queried), k), np.int64), np.zeros((len(queried), k), bool)
    last = np.zeros((len(queried), 2), np.int64)

    def fill(start: int, stop: int) -> None:
        part, batch = slice(start, stop), queried[start:stop]
        scores = wide(score(batch))
        # One more position than requested shows whether the last position ties with items outside of the list.
        places, best = best_of_block(scores, min(k + 1, num_items), known.rows(batch))
        items[part] = places[:, :k]
        same[part, 1:] = (best[:, 1:k] == best[:, : k - 1]) & (places[:, 1:k] >= 0)
        if places.shape[1] > k:
            tied = np.flatnonzero((best[:, k] == best[:, k - 1]) & (places[:, k] >= 0))
            if len(tied):
                sets = known.rows(batch[tied]), held_out.rows(batch[tied])
                last[start + tied] = _tied_with(scores, best[tied, k - 1], tied, *sets)

    lists, same_lists, last_tied = fill_shared([items, same, last], blocks(len(queried), num_items), fill, poll)
    hit, positives = hits(lists, *held_out.rows(queried), num_items)
    return ItemLists(queried, lists, hit, positives, Ties.of(hit, same_lists, last_tied))


def _tied_with(
    scores: torch.Tensor, values: Float, rows: Int64, known: tuple[Int64, Int64], held_out: tuple[Int64, Int64]
) -> Int64:
    """Int64 [R, 2]: number of unknown items whose score in ``rows`` equals the row's value in ``values``, and of
    held-out ones among them."""
    import torch

    from graphmill.kernels.rank_counts import rank_counts

    scores_of_rows = scores if len(rows) == len(scores) else scores[torch.from_numpy(rows).to(scores.device)]
    target = torch.from_numpy(values).to(scores_of_rows)
    tied = rank_counts(scores_of_rows, target)[1].cpu().numpy()

    def those(of: tuple[Int64, Int64]) -> Int64:
        """The distinct (row, item) pairs that tie."""
        row, item = (
            torch.from_numpy(x).to(scores_of_rows.device)
            for x in (np.repeat(np.arange(len(rows)), np.diff(of[0])), of[1])
        )
        chosen = scores_of_rows[row, item] == target[row]
        return sorted_unique((row[chosen] * scores_of_rows.shape[1] + item[chosen]).cpu().numpy())

    left_out, held = those(known), those(held_out)
    held = held[~in_sorted(held, left_out)]
    counts = [np.bincount(keys // scores_of_rows.shape[1], minlength=len(rows)) for keys in (left_out, held)]
    return np.column_stack((tied - counts[0], counts[1]))
