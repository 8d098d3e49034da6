"""Draws the steps of a sequence model: windows in a shuffled order, negatives, shared samples. Keyed, vectorised."""

from __future__ import annotations

import numpy as np

from graphmill.sampling.keyed import generator
from graphmill.sampling.negatives import corrupt_tails
from graphmill.sampling.sequences import ranges, uniform_negatives
from graphmill.systems.sequences.batch import SequenceBatch
from graphmill.systems.sequences.data import SequenceData
from graphmill.systems.sequences.settings import SequenceObjective


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
            negatives=self._negatives(users, targets, epoch, index),
            sampled=self._sampled(epoch, index),
            chosen=np.arange(len(rows)),
            regularised=self.objective.l2_emb > 0.0,
        )

    def _epoch_order(self, epoch: int) -> np.ndarray:
        known, order = self._order
        if known != epoch:
            order = generator(self.seed, "windows", epoch).permutation(len(self.data.user))
            self._order = (epoch, order)  # replaced as a whole, since threads that prepare batches share it
        return order

    def _negatives(self, users: np.ndarray, targets: np.ndarray, epoch: int, index: int) -> np.ndarray:
        objective, items = self.objective, self.data.sequences.num_items
        rng = generator(self.seed, "negatives", epoch, index)
        if objective.loss == "bce":
            return corrupt_tails(rng, users, self.data.known, items, objective.negatives_per_positive)
        if objective.loss == "gbce":
            return uniform_negatives(rng, targets, items, objective.negatives_per_positive)
        return np.zeros((len(targets), 0), np.int64)

    def _sampled(self, epoch: int, index: int) -> np.ndarray:
        if self.objective.loss != "sampled_softmax":
            return np.zeros(0, np.int64)
        rng = generator(self.seed, "sampled", epoch, index)
        drawn = np.searchsorted(self._cumulative, rng.random(self.objective.sampled_items), side="right")
        return np.minimum(drawn, len(self._cumulative) - 1)
