"""The data of one step of a recommender: users, their items (positives), and other items (negatives)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from graphmill.systems.base_recipe import RowBatch


@dataclass(frozen=True)
class PairBatch(RowBatch):
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

    def __len__(self) -> int:
        return len(self.users)

    @property
    def weights(self) -> Mapping[str, float]:
        """The number of rows, for each term."""
        return dict.fromkeys(self.terms, float(len(self.users)))

    def split(self, parts: int) -> Sequence[PairBatch]:
        """At most ``parts`` chunks of rows."""
        if parts == 1 and len(self):
            return [self]
        return [self._take(rows) for rows in np.array_split(np.arange(len(self.users)), parts) if len(rows)]

    def shard(self, rank: int, world: int) -> PairBatch:
        """Every ``world``-th row."""
        return replace(self._take(np.arange(rank, len(self.users), world)), ranks=world)

    def _take(self, rows: np.ndarray) -> PairBatch:
        return replace(self, users=self.users[rows], positives=self.positives[rows], negatives=self.negatives[rows])
