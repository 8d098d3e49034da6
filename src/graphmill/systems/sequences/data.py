"""The training data of sequence models: windows of the training interactions, with scaled times, and the draws of steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from graphmill.errors import InputError
from graphmill.graph.sequences import Sequences, sequence_view
from graphmill.graph.typed_graph import TypedGraph
from graphmill.sampling.keyed import generator
from graphmill.sampling.negatives import PairSet, corrupt_tails, pair_keys
from graphmill.sampling.ranges import ranges
from graphmill.systems.base_system import RowBatch
from graphmill.systems.sequences.layout import BUCKET_OVERHEAD, Layout, lay_out
from graphmill.systems.sequences.settings import SequenceObjective

Times = Callable[[np.ndarray, np.ndarray], np.ndarray | None]
"""Interactions and their users, int64 [N] each → scaled times int64 [N], or None if the model does not use times."""
SECONDS = {"second": 1, "minute": 60, "hour": 3600, "day": 86_400}


class SequenceData:
    """Windows of at most ``max_length`` + 1 consecutive training interactions: all but the last are inputs.

    ``user``, ``start``, ``stop`` int64 [W]: window w is ``sequences.items[start[w] : stop[w]]``. ``windows`` "last":
    each user's newest window; "all": as many windows as needed so that every training interaction except a user's first
    is a target once.
    """

    def __init__(self, graph: TypedGraph, max_length: int, windows: str, time_unit: str) -> None:
        """``time_unit`` empty: the model does not use times."""
        self.sequences: Sequences = sequence_view(graph)
        if time_unit and self.sequences.timestamps is None:
            raise InputError(
                f"{graph.path} has no timestamps, which tisasrec needs (it learns from the time between interactions); "
                "use the system sasrec, or a file with a timestamp column"
            )
        self.max_length, self.time_unit = max_length, time_unit
        first, end = self.sequences.indptr[:-1], self.sequences.train_ends()
        targets = np.maximum(end - first - 1, 0)
        if not targets.any():
            raise InputError(
                f"{graph.path}: no user has two training interactions, so there is no next item to learn from; use a "
                "longer history or a smaller k_core"
            )
        count = np.minimum(-(-targets // max_length), 1 if windows == "last" else np.iinfo(np.int64).max)
        self.user = np.repeat(np.arange(len(first)), count)
        self.stop = end[self.user] - ranges(0 * count, count) * max_length
        self.start = np.maximum(self.stop - max_length - 1, first[self.user])

    @cached_property
    def known(self) -> PairSet:
        """Each user's training items, for negatives that the user has not met."""
        s = self.sequences
        rows = ranges(s.indptr[:-1], s.train_ends())
        return PairSet(pair_keys(s.users[rows], s.items[rows], s.num_items), s.num_users * s.num_items)

    @cached_property
    def popularity(self) -> np.ndarray:
        """int64 [I]: the number of training interactions of each item."""
        s = self.sequences
        return np.bincount(s.items[s.split == 0], minlength=s.num_items)

    @cached_property
    def _unit(self) -> np.ndarray:
        s = self.sequences
        assert s.timestamps is not None
        return units(self.time_unit, s.timestamps, s.indptr, s.train_ends())

    def times(self, rows: np.ndarray, users: np.ndarray) -> np.ndarray | None:
        """Scaled times of interactions ``rows`` of ``users`` (both [N]): int64 [N]; None if the model does not use times."""
        s = self.sequences
        if not self.time_unit or s.timestamps is None:
            return None
        return scaled_times(s.timestamps[rows], s.timestamps[s.indptr[users]], self._unit[users])


def units(time_unit: str, times: np.ndarray, indptr: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """int64 [U]: the unit of each user's times, in seconds; ``indptr[u] .. ends[u] − 1``: interactions that set its own."""
    return smallest_gaps(times, indptr, ends) if time_unit == "per_user" else np.full(len(ends), SECONDS[time_unit])


def smallest_gaps(times: np.ndarray, indptr: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """int64 [U]: each user's smallest positive gap between consecutive times in ``indptr[u] .. ends[u] − 1``; 1 if none."""
    users = len(ends)
    rows = ranges(indptr[:-1], ends)
    owner = np.repeat(np.arange(users), ends - indptr[:-1])
    gap = np.diff(times[rows])
    inside = (owner[1:] == owner[:-1]) & (gap > 0)
    out = np.full(users, np.iinfo(np.int64).max)
    np.minimum.at(out, owner[1:][inside], gap[inside])
    return np.where(out == np.iinfo(np.int64).max, 1, out)


def scaled_times(times: np.ndarray, first: np.ndarray, unit: np.ndarray) -> np.ndarray:
    """round((t − t_first) / unit) + 1, int64 [N]: TiSASRec's times, with the user's ``first`` and ``unit`` [N]."""
    return np.rint((times - first) / unit).astype(np.int64) + 1


class SequenceSampler:
    """A step is a function of (seed, epoch, index); every window occurs once per epoch, ``batch_size`` of them in a step."""

    def __init__(self, data: SequenceData, objective: SequenceObjective, batch_size: int, seed: int) -> None:
        self.data, self.objective, self.batch_size, self.seed = data, objective, batch_size, seed
        self._order: tuple[int, np.ndarray] = (-1, np.zeros(0, np.int64))
        weight = data.popularity + 1.0
        self.probability: np.ndarray = weight / weight.sum()
        self._cumulative = np.cumsum(self.probability)

    @property
    def steps_per_epoch(self) -> int:
        """The number of steps of one pass; the last step may be smaller."""
        return -(-len(self.data.user) // self.batch_size)

    def step(self, epoch: int, index: int) -> SequenceBatch:
        """Step ``index`` of a pass; after the end of the pass the order starts again."""
        index %= self.steps_per_epoch
        windows = self._epoch_order(epoch)[index * self.batch_size : (index + 1) * self.batch_size]
        data, s = self.data, self.data.sequences
        start, stop = data.start[windows], data.stop[windows]
        rows = ranges(start, stop - 1)
        lengths = stop - 1 - start
        users = np.repeat(data.user[windows], lengths)
        targets = s.items[rows + 1]
        return SequenceBatch(
            lengths=lengths,
            items=s.items[rows],
            targets=targets,
            times=data.times(rows, users),
            negatives=self._negatives(users, epoch, index),
            sampled=self._sampled(epoch, index),
            chosen=np.arange(len(rows)),
        )

    def _epoch_order(self, epoch: int) -> np.ndarray:
        known, order = self._order
        if known != epoch:
            order = generator(self.seed, "windows", epoch).permutation(len(self.data.user))
            self._order = (epoch, order)  # replaced as a whole, since threads that prepare batches share it
        return order

    def _negatives(self, users: np.ndarray, epoch: int, index: int) -> np.ndarray:
        if self.objective.loss != "bce":
            return np.zeros((len(users), 0), np.int64)
        rng = generator(self.seed, "negatives", epoch, index)
        return corrupt_tails(rng, users, self.data.known, self.data.sequences.num_items, self.objective.drawn)

    def _sampled(self, epoch: int, index: int) -> np.ndarray:
        if self.objective.loss != "sampled_softmax":
            return np.zeros(0, np.int64)
        rng = generator(self.seed, "sampled", epoch, index)
        drawn = np.searchsorted(self._cumulative, rng.random(self.objective.drawn), side="right")
        return np.minimum(drawn, len(self._cumulative) - 1)


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
