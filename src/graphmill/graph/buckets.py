"""Sorts rows that do not fit in memory into numbered buckets in files. Each bucket fits in memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from graphmill.ingest.disk import let_go, zeros

Columns = dict[str, npt.NDArray[Any]]


class Buckets:
    """Rows with several columns (n,), in one bucket for each entry of ``sizes`` (the largest number of rows of each bucket).

    A bucket keeps its rows in the order in which they were added.
    """

    def __init__(self, sizes: npt.NDArray[np.int64], columns: Mapping[str, npt.DTypeLike]) -> None:
        self.first = np.concatenate(([0], np.cumsum(sizes))).astype(np.int64)
        self.end = self.first[:-1].copy()
        self._columns = {name: zeros(int(self.first[-1]), dtype) for name, dtype in columns.items()}

    def put(self, bucket: npt.NDArray[np.integer], rows: Mapping[str, npt.NDArray[Any]]) -> None:
        """Add ``rows``; row i goes to bucket ``bucket[i]``."""
        if not len(bucket):
            return
        order = np.argsort(bucket, kind="stable")
        ordered = bucket[order]
        starts = np.flatnonzero(np.diff(ordered, prepend=-1))
        for start, stop in zip(starts.tolist(), [*starts[1:].tolist(), len(order)], strict=True):
            number = int(ordered[start])
            place = slice(int(self.end[number]), int(self.end[number]) + stop - start)
            for name, column in self._columns.items():
                column[place] = rows[name][order[start:stop]]
            self.end[number] = place.stop
        let_go(*self._columns.values())

    def get(self, number: int) -> Columns:
        """The rows of one bucket, in memory."""
        place = slice(int(self.first[number]), int(self.end[number]))
        bucket_rows = {name: np.array(column[place]) for name, column in self._columns.items()}
        let_go(*self._columns.values())
        return bucket_rows

    def replace(self, number: int, rows: Mapping[str, npt.NDArray[Any]]) -> None:
        """Replace the rows of one bucket by ``rows``, which must not be more than before."""
        count = len(next(iter(rows.values())))
        place = slice(int(self.first[number]), int(self.first[number]) + count)
        for name, column in self._columns.items():
            column[place] = rows[name]
        self.end[number] = place.stop
        let_go(*self._columns.values())


class Ranges:
    """The numbers 0 .. n - 1, cut into ranges with about equally many rows. The rows of each number are counted before.

    A range has at most ``most`` rows. A number with more rows is a range by itself.
    """

    BINS = 1 << 12

    def __init__(self, numbers: int) -> None:
        self.shift = max(int(numbers - 1).bit_length() - self.BINS.bit_length() + 1, 0) if numbers else 0
        self.counts = np.zeros(((max(numbers, 1) - 1) >> self.shift) + 1, np.int64)
        self.of_bin = np.zeros(len(self.counts), np.int64)
        self.sizes = np.zeros(1, np.int64)

    def count(self, numbers: npt.NDArray[np.integer]) -> None:
        """Count rows by their number."""
        self.counts += np.bincount(numbers >> self.shift, minlength=len(self.counts))

    def cut(self, most: int) -> npt.NDArray[np.int64]:
        """Choose the ranges. Returns ``sizes``, the number of rows of each."""
        number = size = 0
        for place, count in enumerate(self.counts.tolist()):
            if size and size + count > most:
                number, size = number + 1, 0
            self.of_bin[place] = number
            size += count
        self.sizes = np.bincount(self.of_bin, self.counts, minlength=number + 1).astype(np.int64)
        return self.sizes

    def of(self, numbers: npt.NDArray[np.integer]) -> npt.NDArray[np.int64]:
        """The range of each number."""
        return self.of_bin[numbers >> self.shift]
