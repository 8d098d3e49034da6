"""The data of one step of a recommender: users, their items (positives), and other items (negatives)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from graphmill.systems.base_system import DividedBatch


@dataclass(frozen=True)
class PairBatch(DividedBatch):
    """B training triples (user, positive, negative), int64 [B] each, local numbers; with k negatives int64 [B, k]. Each
    of ``terms`` has weight B.

    ``masked``: int64, edges of the graph whose messages are left out in this step; ``nodes``: int64, ascending, nodes
    whose vectors the step looks up. Every chunk and every rank has both of the whole batch. ``replicated``: whether
    every rank encodes the whole graph; ``ranks``: the number of ranks that share the batch.
    """

    users: np.ndarray
    positives: np.ndarray
    negatives: np.ndarray
    terms: tuple[str, ...] = ()
    replicated: bool = True
    ranks: int = 1
    masked: np.ndarray | None = None
    nodes: np.ndarray | None = None

    ROWS = ("users", "positives", "negatives")

    @property
    def weights(self) -> Mapping[str, float]:
        """The number of rows, for each term."""
        return dict.fromkeys(self.terms, float(len(self)))

    @property
    def wrong(self) -> np.ndarray:
        """``negatives`` as int64 [B, k], also for one negative."""
        return self.negatives.reshape(len(self), -1)

    @property
    def items(self) -> np.ndarray:
        """int64 [B, 1 + k]: each pair's item, and its negatives."""
        return np.column_stack((self.positives, self.wrong))

    def shard(self, rank: int, world: int) -> PairBatch:
        """Every ``world``-th row."""
        return replace(super().shard(rank, world), ranks=world)
