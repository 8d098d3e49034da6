"""Synthetic viewing histories in which the time since the last view decides what comes next.

Model. ``items`` items stand in two random cyclic orders, A and B. A user starts anywhere. The gap between two views is
short (30 to 90 seconds, or none: a tie) or long (1 to 4 days) with probability ½ each, drawn anew each time. After view
i the next item is, with probability 1 - ε, the follower of item i: in A where the gap *before* view i was short, in B
where it was long; with probability ε it is drawn by popularity (Zipf).

Oracle. A model that reads the times can know the follower: HR@1 = 1 - ε (and a little by chance). A model that reads
only the items has two candidates and cannot distinguish them, because gaps are independent of items: HR@1 ≤ (1 - ε) /
2. So a model with time relations is by construction better than the same model without them (tested).

The file has TiSASRec's layout, ``user<TAB>item<TAB>rating<TAB>timestamp``, in shuffled order.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

NOISE = 0.1
TIE = 0.1
_START = 1_500_000_000
_SHAPES = {"tiny": (300, 60, 12, 24), "small": (2000, 500, 20, 60), "paper": (6040, 3416, 60, 270)}
PRESETS = tuple(_SHAPES)
"""tiny: the committed sample; small: for a look; paper: the shape of MovieLens-1M, for timing and memory."""


class Watch:
    """One sample; the same for the same preset and seed.

    ``user``, ``item``, ``timestamp``, ``rating``: int64, one row per view, in each user's order. ``predictable``: bool,
    whether the follower rule (and not chance) chose the item.
    """

    def __init__(self, preset: str, seed: int = 0) -> None:
        users, self.items, shortest, longest = _SHAPES[preset]
        rng = np.random.default_rng(seed)
        self.next_short, self.next_long = _cycle(rng, self.items), _cycle(rng, self.items)
        lengths = rng.integers(shortest, longest + 1, users)
        steps = int(lengths.max())
        short = rng.random((users, steps)) < 0.5
        gap = np.where(short, rng.integers(30, 91, (users, steps)), rng.integers(86_400, 4 * 86_400, (users, steps)))
        gap[short & (rng.random((users, steps)) < TIE)] = 0
        noise = rng.random((users, steps)) < NOISE
        weight = 1.0 / np.arange(1, self.items + 1)
        chance = rng.choice(self.items, (users, steps), p=weight / weight.sum())
        views = np.empty((users, steps), np.int64)
        views[:, 0] = chance[:, 0]
        for i in range(1, steps):
            follower = np.where(short[:, i - 1], self.next_short[views[:, i - 1]], self.next_long[views[:, i - 1]])
            views[:, i] = np.where(noise[:, i], chance[:, i], follower)
        held = np.arange(steps) < lengths[:, None]
        gap[:, 0] = rng.integers(0, 30 * 86_400, users)
        times = _START + np.cumsum(gap, axis=1)
        self.user = np.broadcast_to(np.arange(users)[:, None], views.shape)[held]
        self.item, self.timestamp = views[held], times[held]
        self.predictable = (~noise & (np.arange(steps) > 1))[held]
        self.rating = rng.integers(1, 6, len(self.item))
        self._shuffle = rng

    def chunks(self) -> Iterator[bytes]:
        """The file. Rows are shuffled, except that rows of one user and second keep their order."""
        order = np.argsort(self._shuffle.random(len(self.user)), kind="stable")
        place = np.empty(len(order), np.int64)
        place[order] = np.arange(len(order))
        tied = np.lexsort((np.arange(len(order)), self.timestamp, self.user))
        group = np.concatenate(([0], np.cumsum((np.diff(self.timestamp[tied]) != 0) | (np.diff(self.user[tied]) != 0))))
        place[tied] = place[tied][np.lexsort((place[tied], group))]
        rows = np.argsort(place, kind="stable")
        for start in range(0, len(rows), 1 << 16):
            part = rows[start : start + (1 << 16)]
            columns = (self.user[part] + 1, self.item[part] + 1, self.rating[part], self.timestamp[part])
            lines = ("\t".join(map(str, row)) for row in zip(*(c.tolist() for c in columns), strict=True))
            yield ("\n".join(lines) + "\n").encode()


def _cycle(rng: np.random.Generator, items: int) -> np.ndarray:
    """A random cyclic order: each item's follower."""
    order = rng.permutation(items)
    follower = np.empty(items, np.int64)
    follower[order] = np.roll(order, -1)
    return follower
