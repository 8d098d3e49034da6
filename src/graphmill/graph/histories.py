"""What people who joined after the training have met, in a model's numbers of items."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True)
class Histories:
    """Items by user, oldest first: those of user u are ``items[indptr[u] : indptr[u + 1]]``.

    ``indptr`` int64 [U + 1]; ``items`` int64 [N], those that the model does not know numbered on behind its own:
    ``new_items`` of them. ``known`` int64 [U]: the model's number of a user, −1 of a new one; what the model knows of the
    user is in the history as well. ``times`` int64 [N], seconds, or None.
    """

    indptr: npt.NDArray[np.int64]
    items: npt.NDArray[np.int64]
    known: npt.NDArray[np.int64]
    new_items: int = 0
    times: npt.NDArray[np.int64] | None = None

    @property
    def users(self) -> npt.NDArray[np.int64]:
        """(N,) int64: the user of each interaction."""
        return np.repeat(np.arange(len(self.known)), np.diff(self.indptr))

    def take(self, kept: npt.NDArray[np.bool_]) -> Histories:
        """Without some interactions; users stay, also those without any left."""
        counts = np.bincount(self.users[kept], minlength=len(self.known))
        indptr = np.concatenate(([0], np.cumsum(counts))).astype(np.int64)
        times = None if self.times is None else self.times[kept]
        return Histories(indptr, self.items[kept], self.known, self.new_items, times)
