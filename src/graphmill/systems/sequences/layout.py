"""Lays sequences of different lengths out as rows of one matrix, in buckets of similar lengths."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from graphmill.sampling.ranges import ranges

BUCKET_OVERHEAD = 150
"""Cost of an additional bucket, in rows, because each bucket has its own few attention operations."""
LAUNCHED_BUCKET_OVERHEAD = 16_384
"""The same on an accelerator, where each of these operations is a kernel launch, which takes as long as thousands of
rows."""
_ATTENTION_ROWS = 64
"""A row's attention over this many positions costs about as much as all its other operations."""
_CLASSES = 32


@dataclass(frozen=True)
class Layout:
    """The layout of sequences in one matrix of rows.

    ``buckets`` int64 [K, 3]: first row, number of sequences, rows per sequence. ``place`` int64 [N]: the row of each
    interaction, in the given order. ``last`` int64 [B]: the row of each sequence's newest interaction. ``rows``: number
    of rows, including padding.
    """

    buckets: np.ndarray
    place: np.ndarray
    last: np.ndarray
    rows: int


def lay_out(lengths: np.ndarray, overhead: int = BUCKET_OVERHEAD) -> Layout:
    """Put sequences of these lengths (int64 [B], ≥ 1) into buckets with the lowest cost of rows, attention and overhead.

    ``overhead``: cost of a bucket, in rows.
    """
    order = np.argsort(-lengths, kind="stable")
    descending = lengths[order]
    bounds = _bucket_bounds(descending, overhead)
    first = np.empty(len(lengths), np.int64)
    buckets = []
    row = 0
    for a, b in pairwise(bounds):
        longest = int(descending[a])
        buckets.append((row, b - a, longest))
        first[order[a:b]] = row + longest * np.arange(b - a)
        row += longest * (b - a)
    last = first + lengths - 1
    return Layout(np.array(buckets, np.int64).reshape(-1, 3), ranges(first, last + 1), last, row)


def _bucket_bounds(descending: np.ndarray, overhead: int) -> list[int]:
    """Bounds of the buckets for sequences sorted by descending length, by a shortest path over length classes."""
    step = max(-(-int(descending[0]) // _CLASSES), 1)
    classes = -(-descending // step)
    starts = np.flatnonzero(np.concatenate(([True], classes[1:] != classes[:-1])))
    cuts = np.append(starts, len(descending))
    longest = descending[starts].astype(float)
    cost, previous = np.zeros(len(cuts)), np.zeros(len(cuts), np.int64)
    for j in range(1, len(cuts)):
        rows = (cuts[j] - cuts[:j]) * longest[:j]
        total = cost[:j] + rows * (1.0 + longest[:j] / _ATTENTION_ROWS) + overhead
        previous[j] = np.argmin(total)
        cost[j] = total[previous[j]]
    bounds, j = [int(cuts[-1])], len(cuts) - 1
    while j:
        j = int(previous[j])
        bounds.append(int(cuts[j]))
    return bounds[::-1]
