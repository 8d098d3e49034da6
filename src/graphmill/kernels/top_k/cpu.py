"""The compiled search of ``top_k``: the maximum of each of many groups of columns, then a look into promising groups only.

A number that k of the groups' maxima reach is a lower bound of the k best: smaller numbers cannot be among them. Group g
of n has the columns g, g + n, g + 2n, …, so that the maxima of all groups are computed in whole vectors.
"""

from __future__ import annotations

from collections import namedtuple
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from graphmill.kernels.runtime.jit import jit
from graphmill.kernels.runtime.threads import over_ranges

_SMALLEST, _LARGEST = 8, 64
"""Columns of a group. Large groups have fewer maxima; small ones give a tighter bound if there are few for the k."""
_GROUPS = 16
"""Number of groups for each of the k, within these bounds."""
_MOST = 1024
"""Largest number of candidates that are all compared with each other, in whole vectors; more are sorted."""
_TURNS = 40
"""Largest number of bisection steps: the bound need not be tight."""
_Search = namedtuple("_Search", "scores indptr items values chosen finite")
_jit = jit(nogil=True, error_model="numpy")


def top_k(scores: Tensor, k: int, indptr: NDArray[np.int64], items: NDArray[np.int64]) -> tuple[Tensor, Tensor, bool]:
    """:func:`graphmill.kernels.top_k.top_k` of contiguous ``scores`` on the CPU, and whether all scores are finite."""
    rows, columns = scores.shape
    k = min(k, columns)
    values, chosen = scores.new_empty(rows, k), torch.empty(rows, k, dtype=torch.int64)
    finite = np.ones(rows, np.bool_)
    call = _Search(scores.numpy(), indptr, items, values.numpy(), chosen.numpy(), finite)
    over_ranges(_search, call, rows, scores.numel())
    return values, chosen, bool(finite.all())


@_jit
def _finite(line: Any, largest: Any) -> bool:
    # The counter has the width of a score, so that both fit vectors of one length.
    bad = np.int32(0)
    for j in range(len(line)):
        bad += np.int32(not (abs(line[j]) <= largest))
    return bad == 0


@_jit
def _fill_maxima(line: Any, left_out: Any, some: Any, maxima: Any) -> None:
    """The maximum of each group's columns, without those that are left out (``some`` of them, marked in ``left_out``)."""
    groups = len(maxima)
    maxima[:] = line[:groups]
    for begin in range(groups, len(line), groups):
        part = line[begin : begin + groups]
        for g in range(len(part)):
            maxima[g] = max(part[g], maxima[g])
    for column in some:
        group = column % groups
        if line[column] == maxima[group]:
            maxima[group] = -np.inf
            for j in range(group, len(line), groups):
                if line[j] > maxima[group] and not left_out[j]:
                    maxima[group] = line[j]


@_jit
def _bound(maxima: Any, k: int, lowest: Any) -> Any:
    """A number that at least k of the ``maxima`` reach, and few more, by bisection; ``lowest`` if fewer are above it."""
    kind, reached = maxima.dtype.type, np.int32(0)
    least, most = -lowest, lowest
    for x in maxima:
        reached += np.int32(x > lowest)
        least, most = min(least, x if x > lowest else least), max(most, x)
    if reached < k:
        return lowest
    for _ in range(_TURNS):
        middle = kind(least + (most - least) / 2)  # rounded here, so that the count is for the final bound
        reached = np.int32(0)
        for g in range(len(maxima)):
            reached += np.int32(maxima[g] >= middle)
        if reached < k:
            most = middle
        else:
            least = middle
            if reached <= k + k // 8:
                break
    return least


@_jit
def _in_order(some: Any, where: Any, values: Any, columns: Any) -> None:
    """Write the highest of ``some``, best first, and their columns ``where``; of equal ones the lower column is first."""
    if len(some) > _MOST:
        by_column = np.argsort(where, kind="mergesort")
        order = by_column[np.argsort(-some[by_column], kind="mergesort")]
        for rank in range(len(values)):
            values[rank], columns[rank] = some[order[rank]], where[order[rank]]
        return
    for i in range(len(some)):
        value, column, rank = some[i], where[i], 0
        for j in range(len(some)):
            rank += int(some[j] > value) + int((some[j] == value) & (where[j] < column))
        if rank < len(values):
            values[rank], columns[rank] = value, column


@_jit
def _search(call: Any, first: int, last: int) -> None:
    scores, indptr, items = call.scores, call.indptr, call.items
    k, columns = call.values.shape[1], scores.shape[1]
    lowest, largest = scores.dtype.type(-np.inf), scores.dtype.type(np.finfo(scores.dtype).max)
    groups = -(-columns // min(max(columns // (_GROUPS * k), _SMALLEST), _LARGEST))
    maxima, left_out = np.empty(groups, scores.dtype), np.zeros(columns, np.bool_)
    high, where = np.empty(columns, scores.dtype), np.empty(columns, np.int32)
    for row in range(first, last):
        line, some = scores[row], items[indptr[row] : indptr[row + 1]]
        if not _finite(line, largest):
            call.finite[row] = False
            continue
        for column in some:
            left_out[column] = True
        _fill_maxima(line, left_out, some, maxima)
        bound, size = _bound(maxima, k, lowest), 0
        for group in range(groups):
            if maxima[group] >= bound:
                for j in range(group, columns, groups):
                    value = lowest if left_out[j] else line[j]
                    if value >= bound:
                        high[size], where[size] = value, j
                        size += 1
        _in_order(high[:size], where[:size], call.values[row], call.chosen[row])
        for column in some:
            left_out[column] = False
