"""The training data of sequence models: windows of the training interactions, with scaled times."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import numpy as np

from graphmill.errors import InputError
from graphmill.graph.sequences import Sequences, sequence_view
from graphmill.graph.typed_graph import TypedGraph
from graphmill.sampling.negatives import PairSet, pair_keys
from graphmill.sampling.sequences import ranges, scaled_times, smallest_gaps

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
                "use the recipe sasrec, or a file with a timestamp column"
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

    @property
    def targets_per_epoch(self) -> int:
        """The number of next items predicted in one pass."""
        return int((self.stop - self.start - 1).sum())

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
