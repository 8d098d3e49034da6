"""The data of one step of KGAT's knowledge phase: facts and false tails."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from graphmill.systems.base_recipe import RowBatch

FACTS, FACT_NORM = "facts", "fact_norm"


@dataclass(frozen=True)
class FactBatch(RowBatch):
    """B facts, int64 [B] each, sorted by relation: global node numbers, and relation numbers."""

    heads: np.ndarray
    relations: np.ndarray
    tails: np.ndarray
    wrong_tails: np.ndarray

    replicated = True

    def __len__(self) -> int:
        return len(self.heads)

    @property
    def weights(self) -> Mapping[str, float]:
        """Facts."""
        return {FACTS: float(len(self.heads)), FACT_NORM: float(len(self.heads))}

    def split(self, parts: int) -> Sequence[FactBatch]:
        """At most ``parts`` chunks of facts, each sorted by relation."""
        if parts == 1 and len(self):
            return [self]
        return [self._take(rows) for rows in np.array_split(np.arange(len(self.heads)), parts) if len(rows)]

    def shard(self, rank: int, world: int) -> FactBatch:
        """Every ``world``-th fact."""
        return self._take(np.arange(rank, len(self.heads), world))

    def _take(self, rows: np.ndarray) -> FactBatch:
        return replace(self, **{name: array[rows] for name, array in self.arrays().items()})
