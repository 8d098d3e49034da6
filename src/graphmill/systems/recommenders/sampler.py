"""Samples training triples of recommenders: a user, an item of the user, and a negative item. Keyed and vectorised.

Negatives are exact: none of them is a training item of its user.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from graphmill.errors import InputError
from graphmill.graph.interactions import CsrPattern
from graphmill.graph.sorted_unique import sorted_unique
from graphmill.sampling.keyed import generator
from graphmill.sampling.negatives import PairSet, corrupt_tails, pair_keys

Draw = Literal["pairs", "users"]
Pool = Literal["seen", "all"]


class PairSampler:
    """Samples the pairs and negatives of a step, as a function of (seed, epoch, index).

    ``draw``: "pairs" takes every training pair once per epoch in a shuffled order; the last step may be smaller (MMRec,
    RecBole). "users" draws users without replacement within a step and independently between steps, and one item of
    each (KGAT), in ``pairs // batch_size + 1`` steps. ``negatives``: uniform over the items "seen" in training, or over
    "all". ``per_positive``: number of negatives for each pair.
    """

    def __init__(
        self,
        train: CsrPattern,
        num_items: int,
        batch_size: int,
        seed: int,
        *,
        draw: Draw = "pairs",
        negatives: Pool = "seen",
        per_positive: int = 1,
    ) -> None:
        self.train, self.batch_size, self.seed, self.draw = train, batch_size, seed, draw
        self.per_positive = per_positive
        pool = sorted_unique(train.columns).astype(np.int64) if negatives == "seen" else np.arange(num_items)
        # Use the pool's numbering, which contains every training item, so that a draw from the pool is one number.
        self._pool = pool
        keys = pair_keys(train.row, np.searchsorted(pool, train.columns), len(pool))
        self._known = PairSet(keys, len(train.counts) * len(pool))
        counts = train.counts
        self._active = np.flatnonzero((counts > 0) & (counts < len(pool)))
        if not len(self._active):
            raise InputError(
                "every user with training items has all of them, so no item can be a negative; "
                "recommendation needs users with different items"
            )
        full = counts >= len(pool)
        self._pairs = np.flatnonzero(~full[train.row]) if full.any() else None
        self._order: tuple[int, np.ndarray] = (-1, np.zeros(0, np.int64))

    @property
    def num_pairs(self) -> int:
        """Number of usable training pairs: those of users for whom a negative exists."""
        return len(self.train) if self._pairs is None else len(self._pairs)

    @property
    def steps_per_epoch(self) -> int:
        """Number of steps per epoch."""
        if self.draw == "users":
            return self.num_pairs // self.batch_size + 1
        return -(-self.num_pairs // self.batch_size)

    def step(self, epoch: int, index: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Users, their items and negative items, int64 [B]. After the last step of an epoch it starts again.

        With several negatives per pair, these are int64 [B, k].
        """
        index %= self.steps_per_epoch
        users, items = self._users(epoch, index) if self.draw == "users" else self._some_pairs(epoch, index)
        rng = generator(self.seed, "negatives", epoch, index)
        drawn = self._pool[corrupt_tails(rng, users, self._known, len(self._pool), self.per_positive)]
        return users, items, drawn if self.per_positive > 1 else drawn[:, 0]

    def _some_pairs(self, epoch: int, index: int) -> tuple[np.ndarray, np.ndarray]:
        rows = self._epoch_order(epoch)[index * self.batch_size : (index + 1) * self.batch_size]
        return self.train.row[rows].astype(np.int64), self.train.columns[rows].astype(np.int64)

    def _users(self, epoch: int, index: int) -> tuple[np.ndarray, np.ndarray]:
        rng = generator(self.seed, "users", epoch, index)
        # The batch is larger than the number of users: draw with replacement, as KGAT does.
        with_replacement = len(self._active) < self.batch_size
        # Sort by row of the tables: random look-ups would be cache misses.
        users = np.sort(rng.choice(self._active, self.batch_size, replace=with_replacement))
        counts = self.train.counts[users]
        places = self.train.indptr[users] + (rng.random(len(users)) * counts).astype(np.int64)
        return users, self.train.columns[places].astype(np.int64)

    def _epoch_order(self, epoch: int) -> np.ndarray:
        known, order = self._order
        if known != epoch:
            order = generator(self.seed, "pairs", epoch).permutation(self.num_pairs)
            order = order if self._pairs is None else self._pairs[order]
            self._order = (epoch, order)  # one assignment: several threads may share it
        return order
