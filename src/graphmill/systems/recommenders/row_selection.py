"""Selects rows of a constant sparse matrix, for products of which only these rows are needed."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
import torch

from graphmill.kernels.propagation import CsrMatrix, SparseMatrix
from graphmill.sampling.ranges import ranges

_MANY = 8
"""Entries for each column of the matrix beyond which the rows' neighbours are all columns, more or less."""
_NEARLY_ALL = 0.9


def select_rows(matrix: SparseMatrix, rows: np.ndarray) -> SparseMatrix:
    """Rows ``rows`` int64 [m] of a matrix [R, C] on the CPU, in their order: a matrix [m, C], also on the CPU.

    Takes time in proportion to the entries selected. Its transpose has the entries sorted by column, then by place in
    ``rows``.
    """
    indptr, column, value = (t.numpy() for t in (matrix.forward.indptr, matrix.forward.column, matrix.forward.value))
    counts = indptr[rows + 1] - indptr[rows]
    chosen = np.concatenate(([0], np.cumsum(counts)))
    entries = ranges(indptr[rows], indptr[rows + 1])
    shape = (len(rows), matrix.shape[1])
    column, value = column[entries], value[entries]
    # A stable counting sort; the numbers sorted with the keys are the entries' original places.
    turned = sp.csr_matrix((np.arange(len(entries)), column, chosen), shape=shape).tocsc()
    order = turned.data.astype(np.int64)
    forward = _rows(chosen, np.repeat(np.arange(len(rows)), counts), column, value)
    back_column = np.repeat(np.arange(shape[1]), np.diff(turned.indptr))
    return SparseMatrix(
        shape, forward, _rows(turned.indptr, back_column, turned.indices, value[order]), torch.from_numpy(order)
    )


def with_neighbours(matrix: SparseMatrix, rows: torch.Tensor) -> torch.Tensor | None:
    """int64, ascending: ``rows`` of a square matrix on the CPU and all columns in which they have entries. None on a
    device, or if these are nearly all rows: then leaving out the others saves nothing.
    """
    if rows.device.type != "cpu":
        return None
    indptr, chosen = matrix.forward.indptr.numpy(), rows.numpy()
    start, end = indptr[chosen], indptr[chosen + 1]
    if not len(chosen) or (end - start).sum() > len(indptr) * _MANY:
        return None
    marks = np.zeros(len(indptr) - 1, bool)
    marks[chosen] = True
    marks[matrix.forward.column.numpy()[ranges(start, end)]] = True
    marked = np.flatnonzero(marks)
    return torch.from_numpy(marked) if len(marked) < _NEARLY_ALL * len(marks) else None


def _rows(indptr: np.ndarray, row: np.ndarray, column: np.ndarray, value: np.ndarray) -> CsrMatrix:
    indptr, row, column = (a.astype(np.int64, copy=False) for a in (indptr, row, column))
    return CsrMatrix(*map(torch.from_numpy, (indptr, row, column, value)))
