"""Finds nearest neighbours by cosine, exactly: every row is compared."""

# Not scikit-learn's NearestNeighbors: it is as fast (130,000 × 512), but refuses rows that are not finite, does not define
# the order of equal neighbours, and its similarities would have to be recomputed in float64.

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphmill.errors import InputError

Int64 = NDArray[np.int64]
Mask = NDArray[np.bool_]

#: Number of queries at a time.
BLOCK_ROWS = 4096
#: Number of similarities in memory at a time: 64 MiB in float32.
BLOCK_SIMILARITIES = 2**24
#: Candidates beyond k whose similarities are computed exactly: float32 products misorder only near ties.
MARGIN = 16
#: Similarity of a row that is no neighbour: below every real one, above the query itself.
LEAST = np.finfo(np.float32).min


@dataclass(frozen=True)
class Neighbours:
    """For each query, nearest first: ``rows`` int64 (Q × k) and ``similarities`` float64 (Q × k)."""

    rows: Int64
    similarities: NDArray[np.float64]


class Vectors:
    """The rows of ``values`` (n × d floats) by their directions.

    ``usable`` bool (n): rows that have a direction. One that is zero or not finite is nobody's neighbour.
    """

    def __init__(self, values: NDArray[Any]) -> None:
        self.values = values
        with np.errstate(over="ignore", invalid="ignore"):
            norms = np.sqrt(np.einsum("ij,ij->i", values, values, dtype=np.float64))
        self.usable: Mask = np.isfinite(norms) & (norms > 0)
        self._norms = np.where(self.usable, norms, 1.0)
        usual = np.abs(np.log10(self._norms)).max(initial=0.0) <= 30
        self._safe_in_fp32 = bool(usual and self.usable.all() and values.dtype != np.float64)
        """Whether float32 products of the values neither overflow nor vanish, so that no block is brought to length 1."""

    def unit(self, rows: Int64, dtype: type[np.floating] = np.float32) -> NDArray[Any]:
        """The rows at length 1 (rows × d); zeros for one without a direction."""
        wide = np.where(self.usable[rows, None], np.asarray(self.values[rows], np.float64), 0.0)
        return (wide / self._norms[rows, None]).astype(dtype)

    def nearest(self, queries: NDArray[np.integer], k: int, among: Mask | None = None) -> Neighbours:
        """The k rows with the largest cosine to each of the rows ``queries`` (Q), without the row itself.

        Every row is compared. Equal similarities are ordered by row number, so the result does not depend on block size
        or thread count (unless more than 16 rows are within float32 rounding of the k-th). Rows that are not usable, or
        not ``among`` those of this mask (n), come last with similarity −inf. Raises :class:`InputError` if there are fewer
        than k other rows.
        """
        if not 1 <= k < len(self.values):
            raise InputError(f"{k} neighbours were asked for; possible are 1 to {len(self.values) - 1}, the other rows")
        allowed = self.usable if among is None else self.usable & among
        kept = min(k + MARGIN, len(self.values) - 1)
        rows, similarities = np.zeros((len(queries), k), np.int64), np.zeros((len(queries), k))
        for start in range(0, len(queries), BLOCK_ROWS):
            part = slice(start, start + BLOCK_ROWS)
            candidates = self._candidates(queries[part].astype(np.int64), kept, allowed)
            exact = self._exact(queries[part].astype(np.int64), candidates, allowed)
            order = np.lexsort((candidates, -exact), axis=1)[:, :k]
            rows[part] = np.take_along_axis(candidates, order, axis=1)
            similarities[part] = np.take_along_axis(exact, order, axis=1)
        return Neighbours(rows, similarities)

    def around(self, row: int, k: int, among: Mask | None = None) -> tuple[Int64, NDArray[np.float64]]:
        """Rows and cosines of the ``k`` neighbours of one row as :meth:`nearest`, or fewer if there are fewer."""
        if len(self.values) < 2:
            return np.zeros(0, np.int64), np.zeros(0)
        near = self.nearest(np.array([row]), min(k, len(self.values) - 1), among)
        real = np.isfinite(near.similarities[0])
        return near.rows[0][real], near.similarities[0][real]

    def _candidates(self, queries: Int64, kept: int, allowed: Mask) -> Int64:
        """The ``kept`` most similar rows of each query by float32 products, in row order: int64 (Q × kept)."""
        left, rows_at_a_time = self.unit(queries), max(1, BLOCK_SIMILARITIES // len(queries))
        best = np.zeros((len(queries), 0), dtype=np.float32)
        rows = np.zeros((len(queries), 0), dtype=np.int64)
        for start in range(0, len(self.values), rows_at_a_time):
            part = slice(start, min(start + rows_at_a_time, len(self.values)))
            if self._safe_in_fp32:
                result = left @ np.asarray(self.values[part], np.float32).T
                result /= self._norms[part].astype(np.float32)
            else:
                result = left @ self.unit(np.arange(part.start, part.stop)).T
            result[:, ~allowed[part]] = LEAST
            inside = np.flatnonzero((queries >= start) & (queries < part.stop))
            result[inside, queries[inside] - start] = -np.inf  # the row itself comes last
            numbers = np.broadcast_to(np.arange(start, part.stop), result.shape)
            best, rows = np.concatenate([best, result], axis=1), np.concatenate([rows, numbers], axis=1)
            chosen = _largest(best, min(kept, best.shape[1]))
            best, rows = best[chosen].reshape(len(queries), -1), rows[chosen].reshape(len(queries), -1)
        return rows

    def _exact(self, queries: Int64, candidates: Int64, allowed: Mask) -> NDArray[np.float64]:
        """Similarities in float64 (Q × candidates), computed pair by pair; −inf for a pair that has none."""
        left, similarities = self.unit(queries, np.float64), np.empty(candidates.shape)
        for place in range(candidates.shape[1]):
            column = candidates[:, place]
            products = np.einsum("ij,ij->i", left, self.unit(column, np.float64))
            similarities[:, place] = np.where(allowed[column] & self.usable[queries], products, -np.inf)
        return similarities


def _largest(values: NDArray[np.float32], count: int) -> Mask:
    """Mask of the ``count`` largest numbers of each row; of equal ones, the first."""
    bound = -np.partition(-values, count - 1, axis=1)[:, count - 1 : count]
    above, equal = values > bound, values == bound
    room = count - above.sum(axis=1, keepdims=True)
    return above | (equal & (np.cumsum(equal, axis=1) <= room))
