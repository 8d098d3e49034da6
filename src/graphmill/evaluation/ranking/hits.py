"""Finds the held-out items of users in ranked lists."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from graphmill.graph.sorted_unique import in_sorted, sorted_unique

Int64 = NDArray[np.int64]


def hits(lists: Int64, indptr: Int64, items: Int64, num_items: int) -> tuple[NDArray[np.bool_], Int64]:
    """bool [Q, K]: whether entries of ``lists`` int64 [Q, K] (−1: none) are held-out items; int64 [Q]: number of these.

    The held-out items of row q are ``items[indptr[q] : indptr[q + 1]]``, each below ``num_items``. Repetitions count once.

    Raises :class:`IndexError` for an item number out of range.
    """
    if max(items.max(initial=-1), lists.max(initial=-1)) >= num_items or items.min(initial=0) < 0:
        raise IndexError(f"an item is not one of the {num_items}")
    row = np.repeat(np.arange(len(lists)), np.diff(indptr))
    keys = sorted_unique(row * np.int64(num_items) + items)
    wanted = np.arange(len(lists))[:, None] * np.int64(num_items) + lists
    return in_sorted(wanted, keys) & (lists >= 0), np.bincount(keys // num_items, minlength=len(lists))
