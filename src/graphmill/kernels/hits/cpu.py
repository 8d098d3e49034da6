"""``hits``, compiled: a thread marks a row's held-out items, checks the list against the marks, and clears them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphmill.kernels.runtime.jit import jit
from graphmill.kernels.runtime.team import over_ranges

_jit = jit(nogil=True, error_model="numpy")
Int64 = NDArray[np.int64]


def hits(lists: Int64, indptr: Int64, items: Int64, num_items: int) -> tuple[NDArray[np.bool_], Int64]:
    """See :func:`graphmill.kernels.hits.hits`."""
    result, counts = np.zeros(lists.shape, np.bool_), np.zeros(len(lists), np.int64)
    arrays = (np.ascontiguousarray(lists), indptr, items, result, counts, num_items)
    over_ranges(_hits, arrays, len(lists), lists.size + len(items))
    return result, counts


@_jit
def _hits(lists: Any, indptr: Any, items: Any, found: Any, counts: Any, num_items: int, first: int, last: int) -> None:
    held = np.zeros(num_items, np.bool_)
    for row in range(first, last):
        for e in range(indptr[row], indptr[row + 1]):
            counts[row] += not held[items[e]]
            held[items[e]] = True
        for place in range(lists.shape[1]):
            item = lists[row, place]
            found[row, place] = item >= 0 and held[item]
        for e in range(indptr[row], indptr[row + 1]):
            held[items[e]] = False
