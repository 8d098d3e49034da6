"""Which users share the most training items: found block by block, never as a matrix of users × users."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import scipy.sparse

from graphmill.graph.interactions import CsrPattern

if TYPE_CHECKING:
    from collections.abc import Iterator

BLOCK_PRODUCTS = 4_000_000
"""Shared items that one block of users looks at, with repetition."""


def top_co_occurrence(rows: CsrPattern, by_column: CsrPattern, k: int) -> tuple[CsrPattern, npt.NDArray[np.int64]]:
    """For each row of ``rows`` (a user's items) the ``k`` other rows that share most columns with it, most first.

    ``by_column`` is the transpose. Rows that share equally many are taken in ascending order; a row may have fewer
    than ``k``, or none. Returns the neighbours, whose ``columns`` are *not* ascending, and int64 [E]: how many columns
    each shares.

    A block of rows of the sparse product R·Rᵀ is made at a time; memory is up to ``BLOCK_PRODUCTS`` × 60 bytes, or one
    row's products where that is more.
    """
    size = len(rows.counts)
    left = scipy.sparse.csr_matrix(
        (np.ones(len(rows), np.int32), rows.columns, rows.indptr), (size, len(by_column.counts))
    )
    right = scipy.sparse.csr_matrix(
        (np.ones(len(by_column), np.int32), by_column.columns, by_column.indptr), left.shape[::-1]
    )
    work = left @ by_column.counts
    counts, columns, shared = [np.zeros(0, np.int64)], [np.zeros(0, np.int32)], [np.zeros(0, np.int64)]
    for first, end in _blocks(work):
        block = (left[first:end] @ right).tocoo()
        other = block.col != block.row + first
        row, column, count = block.row[other], block.col[other].astype(np.int64), block.data[other].astype(np.int64)
        # One key that sorts by row, then by most shared, then by number: sorting integers is many times faster than
        # sorting triples.
        most = int(count.max(initial=0)) + 1
        key = np.sort((row.astype(np.int64) * most + (most - 1 - count)) * size + column)
        row = key // (most * size)
        per_row = np.bincount(row, minlength=end - first)
        place = np.arange(len(key)) - np.repeat(np.cumsum(per_row) - per_row, per_row)
        key = key[place < k]
        counts.append(np.minimum(per_row, k))
        columns.append((key % size).astype(np.int32))
        shared.append(most - 1 - key // size % most)
    indptr = np.concatenate(([0], np.cumsum(np.concatenate(counts)))).astype(np.int64)
    return CsrPattern(indptr, np.concatenate(columns)), np.concatenate(shared)


def _blocks(work: npt.NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """Ranges of rows of at most ``BLOCK_PRODUCTS`` products together, at least one row each."""
    done, first = np.concatenate(([0], np.cumsum(work))), 0
    while first < len(work):
        end = int(np.searchsorted(done, done[first] + BLOCK_PRODUCTS, side="right")) - 1
        end = min(max(end, first + 1), len(work))
        yield first, end
        first = end
