"""Interactions of users who joined after the training, in a model's item numbers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from graphmill.graph.interactions import NO_PAIRS, CsrPattern


@dataclass(frozen=True)
class Histories:
    """Items by user, oldest first: those of user u are ``items[indptr[u] : indptr[u + 1]]``.

    ``indptr`` int64 [U + 1]; ``items`` int64 [N]. The ``new_items`` items that the model does not know have numbers
    after its own. ``known`` int64 [U]: the model's number of a user, −1 for a new user; the history of a known user
    includes the training interactions. ``times`` int64 [N], seconds, or None. ``disliked``: items that no list has.
    ``weights`` float32 [N], relative to the mean of the training (``RelationEdges.relative_weights``), or None.
    """

    indptr: npt.NDArray[np.int64]
    items: npt.NDArray[np.int64]
    known: npt.NDArray[np.int64]
    new_items: int = 0
    times: npt.NDArray[np.int64] | None = None
    disliked: CsrPattern = NO_PAIRS
    weights: npt.NDArray[np.float32] | None = None

    @property
    def users(self) -> npt.NDArray[np.int64]:
        """(N,) int64: the user of each interaction."""
        return np.repeat(np.arange(len(self.known)), np.diff(self.indptr))

    def take(self, kept: npt.NDArray[np.bool_]) -> Histories:
        """A selection of the interactions. All users stay, even those without any left."""
        counts = np.bincount(self.users[kept], minlength=len(self.known))
        indptr = np.concatenate(([0], np.cumsum(counts))).astype(np.int64)
        times = None if self.times is None else self.times[kept]
        weights = None if self.weights is None else self.weights[kept]
        return Histories(indptr, self.items[kept], self.known, self.new_items, times, self.disliked, weights)
