"""The data of one ConvE step: queries with their known tails, or triples with random tails."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from graphmill.systems.base_recipe import RowBatch

LOSS = "bce"


@dataclass(frozen=True)
class ConveBatch(RowBatch):
    """Queries ``head``, ``relation`` int64 [B], and their candidates.

    kvsall: every one of ``entities``, with known tails at (``row``, ``column``) int64 [P]. slcwa: ``candidates`` int64
    [B, 1 + k], the true tail first, −1 for none. ``parts``: the number of blocks of entities in the loss.
    """

    head: np.ndarray
    relation: np.ndarray
    row: np.ndarray
    column: np.ndarray
    entities: int
    candidates: np.ndarray | None = None
    parts: int = 1

    @property
    def weights(self) -> Mapping[str, float]:
        """The number of scores in the loss, which is their mean."""
        if self.candidates is not None:
            return {LOSS: float((self.candidates >= 0).sum())}
        return {LOSS: float(len(self.head)) * self.entities}

    def split(self, parts: int) -> Sequence[ConveBatch]:
        """One chunk whose loss is computed in blocks of entities; rows stay together, because the batch norms need all
        of them."""
        return (replace(self, parts=parts),)

    def shard(self, rank: int, world: int) -> ConveBatch:
        """Every ``world``-th row."""
        mine = self.row % world == rank
        return replace(
            self,
            head=self.head[rank::world],
            relation=self.relation[rank::world],
            row=self.row[mine] // world,
            column=self.column[mine],
            candidates=None if self.candidates is None else self.candidates[rank::world],
        )
