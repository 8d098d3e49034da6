"""Finds exact nearest neighbours in an embedding."""

# Not scikit-learn's NearestNeighbors: it is as fast (130,000 × 512), but refuses rows that are not finite, does not define
# the order of equal neighbours, and its similarities would have to be recomputed in float64.

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphmill.errors import InputError

Int64 = NDArray[np.int64]

#: Number of similarities in memory at a time: 64 MiB in float32.
BLOCK_SIMILARITIES = 2**24
#: Candidates beyond k whose similarities are computed exactly: float32 products misorder only near ties.
MARGIN = 16
#: Similarity of a row without a direction: below every real one, above the query itself.
LEAST = np.finfo(np.float32).min


@dataclass(frozen=True)
class Neighbours:
    """For each query, nearest first: ``rows`` int64 (Q × k) and ``similarities`` float64 (Q × k)."""

    rows: Int64
    similarities: NDArray[np.float64]


def nearest(X: NDArray[Any], query_rows: NDArray[np.integer], k: int, *, block_rows: int = 4096) -> Neighbours:
    """The k rows of X (n × d floats) with the largest cosine to each of the rows ``query_rows`` (Q), without the row itself.

    Every row is compared. Equal similarities are ordered by row number, so the result does not depend on block size or
    thread count (unless more than 16 rows are within float32 rounding of the k-th). Rows that are zero or not finite come
    last with similarity −inf. Raises :class:`InputError` if there are fewer than k other rows.
    """
    if not 1 <= k < len(X):
        raise InputError(f"{k} neighbours were asked for; possible are 1 to {len(X) - 1}, the other rows")
    queries = query_rows.astype(np.int64)
    kept = min(k + MARGIN, len(X) - 1)
    rows, similarities = np.zeros((len(queries), k), dtype=np.int64), np.zeros((len(queries), k))
    queries_at_a_time = max(1, BLOCK_SIMILARITIES // max(block_rows, kept))
    for start in range(0, len(queries), queries_at_a_time):
        part = queries[start : start + queries_at_a_time]
        candidates = _candidates(X, part, kept, block_rows)
        exact = _exact(X, part, candidates)
        order = np.lexsort((candidates, -exact), axis=1)[:, :k]
        rows[start : start + len(part)] = np.take_along_axis(candidates, order, axis=1)
        similarities[start : start + len(part)] = np.take_along_axis(exact, order, axis=1)
    return Neighbours(rows, similarities)


def _prepared(block: NDArray[Any], dtype: type[np.floating]) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """Rows at length 1, and a mask of those that can be a neighbour."""
    wide = np.asarray(block, dtype=np.float64)
    finite: NDArray[np.bool_] = np.asarray(np.isfinite(wide).all(axis=-1))
    wide = np.where(finite[..., None], wide, 0.0)
    norms = np.sqrt(np.square(wide).sum(axis=-1))
    usable: NDArray[np.bool_] = np.asarray(norms > 0)
    return (wide / np.where(usable, norms, 1.0)[..., None]).astype(dtype), usable


def _candidates(X: NDArray[Any], queries: Int64, kept: int, block_rows: int) -> Int64:
    """The ``kept`` most similar rows of each query by float32 products, in row order: int64 (Q × kept)."""
    left, _ = _prepared(X[queries], np.float32)
    best = np.zeros((len(queries), 0), dtype=np.float32)
    rows = np.zeros((len(queries), 0), dtype=np.int64)
    for start in range(0, len(X), block_rows):
        right, usable = _prepared(X[start : start + block_rows], np.float32)
        result = left @ right.T
        result[:, ~usable] = LEAST
        inside = np.flatnonzero((queries >= start) & (queries < start + len(right)))
        result[inside, queries[inside] - start] = -np.inf  # the row itself comes last
        numbers = np.broadcast_to(np.arange(start, start + len(right)), result.shape)
        best, rows = np.concatenate([best, result], axis=1), np.concatenate([rows, numbers], axis=1)
        chosen = _largest(best, min(kept, best.shape[1]))
        best, rows = best[chosen].reshape(len(queries), -1), rows[chosen].reshape(len(queries), -1)
    return rows


def _largest(values: NDArray[np.float32], count: int) -> NDArray[np.bool_]:
    """Mask of the ``count`` largest numbers of each row; of equal ones, the first."""
    bound = -np.partition(-values, count - 1, axis=1)[:, count - 1 : count]
    above, equal = values > bound, values == bound
    room = count - above.sum(axis=1, keepdims=True)
    return above | (equal & (np.cumsum(equal, axis=1) <= room))


def _exact(X: NDArray[Any], queries: Int64, candidates: Int64) -> NDArray[np.float64]:
    """Similarities in float64 (Q × candidates), computed pair by pair; −inf for a row without a direction."""
    left, left_usable = _prepared(X[queries], np.float64)
    similarities = np.empty(candidates.shape)
    for place in range(candidates.shape[1]):
        right, usable = _prepared(X[candidates[:, place]], np.float64)
        products = np.einsum("ij,ij->i", left, right)
        similarities[:, place] = np.where(usable & left_usable, products, -np.inf)
    return similarities
