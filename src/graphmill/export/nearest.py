"""Finds nearest neighbours by cosine, exactly: every row is compared."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Int64 = NDArray[np.int64]
Float32 = NDArray[np.float32]


class Vectors:
    """Vectors with their norms. ``values`` float32 (n × d). A zero row, or one that is not finite, is never a neighbour."""

    def __init__(self, values: Float32) -> None:
        self.values = values
        norms = np.concatenate(
            [np.linalg.norm(values[start : start + 65536], axis=1) for start in range(0, len(values), 65536)]
        )
        self.usable: NDArray[np.bool_] = np.isfinite(norms) & (norms > 0)
        self._inverse: Float32 = np.zeros(len(norms), np.float32)
        self._inverse[self.usable] = 1 / norms[self.usable]

    def unit(self, rows: Int64) -> Float32:
        """The rows at length 1 (float32, rows × d)."""
        result: Float32 = self.values[rows] * self._inverse[rows, None]
        return result

    def cosines(self, queries: Float32, start: int = 0, stop: int | None = None) -> Float32:
        """Cosines of unit ``queries`` (q × d) with the rows from ``start`` to ``stop``; −inf for a row without a
        direction."""
        part = slice(start, stop)
        result: Float32 = (queries @ self.values[part].T) * self._inverse[part]
        result[:, ~self.usable[part]] = -np.inf
        return result

    def nearest(self, row: int, k: int, among: NDArray[np.bool_] | None = None) -> tuple[Int64, Float32]:
        """The ``k`` nearest rows to a row, without itself, nearest first, by exact search. Ties are in row order.

        ``among`` bool (n): only these rows. Returns fewer rows if there are fewer.
        """
        result = self.cosines(self.unit(np.array([row])))[0]
        result[row] = -np.inf
        if among is not None:
            result[~among] = -np.inf
        return _best(np.arange(len(result)), result, k)


def _best(rows: Int64, cosines: Float32, k: int) -> tuple[Int64, Float32]:
    if k < len(rows):
        least = np.partition(cosines, len(rows) - k)[len(rows) - k]
        kept = np.flatnonzero(cosines >= least)
        rows, cosines = rows[kept], cosines[kept]
    order = np.lexsort((rows, -cosines))[:k]
    order = order[np.isfinite(cosines[order])]
    return rows[order], cosines[order]
