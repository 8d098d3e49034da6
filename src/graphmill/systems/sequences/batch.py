"""The data of one step of a sequence model: sequences, the next item of each interaction, and negatives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from graphmill.sampling.sequences import BUCKET_OVERHEAD, Layout, lay_out, ranges
from graphmill.systems.base_system import RowBatch

NEXT_ITEM = "next_item"


@dataclass(frozen=True)
class SequenceBatch(RowBatch):
    """B sequences with N interactions in total, concatenated.

    ``lengths`` int64 [B]; ``items``, ``targets`` int64 [N]; ``times`` int64 [N] or None; ``negatives`` int64 [N, k] (−1
    = none) or [N, 0]; ``sampled`` int64 [M]: items drawn for all rows. ``chosen`` int64: the interactions in the loss
    of this chunk. ``bucket_overhead``: see :func:`lay_out`.
    """

    lengths: np.ndarray
    items: np.ndarray
    targets: np.ndarray
    times: np.ndarray | None
    negatives: np.ndarray
    sampled: np.ndarray
    chosen: np.ndarray
    bucket_overhead: int = BUCKET_OVERHEAD

    @property
    def weights(self) -> Mapping[str, float]:
        """The number of targets."""
        return {NEXT_ITEM: float(len(self.chosen))}

    @cached_property
    def layout(self) -> Layout:
        """The layout of its sequences."""
        return lay_out(self.lengths, self.bucket_overhead)

    def groups(self) -> Sequence[SequenceBatch]:
        """All sequences are encoded together."""
        return (self,) if len(self.lengths) else ()

    def split(self, parts: int) -> Sequence[SequenceBatch]:
        """At most ``parts`` chunks of the targets."""
        if parts == 1:
            return [self]
        chunks = [replace(self, chosen=part) for part in np.array_split(self.chosen, parts) if len(part)]
        for chunk in chunks:
            vars(chunk)["layout"] = self.layout
        return chunks

    def shard(self, rank: int, world: int) -> SequenceBatch:
        """Every ``world``-th sequence."""
        mine = np.arange(rank, len(self.lengths), world)
        ends = np.cumsum(self.lengths)
        rows = ranges((ends - self.lengths)[mine], ends[mine])
        return replace(
            self,
            lengths=self.lengths[mine],
            items=self.items[rows],
            targets=self.targets[rows],
            times=None if self.times is None else self.times[rows],
            negatives=self.negatives[rows],
            chosen=np.arange(len(rows)),
        )
