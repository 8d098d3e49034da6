"""The compiled search of ``top_k``: the highest number of each block first, then only the blocks that can hold one of the k.

What k of the blocks' maxima reach is a bound: k numbers are at least that high, so what is lower is none of the k best.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from graphmill.kernels.team import in_ranges, over_ranges
from graphmill.kernels.vectors import LANES, address, highest, larger, load, not_finite, spread, total

_BLOCK = 64
_NOWHERE = 1 << 62
_TURNS = 40
"""Of a bisection, at most: a bound need not be close."""
# What is compared is known not to be NaN: without that, a maximum is taken one number at a time.
_jit = numba.njit(nogil=True, fastmath={"nnan", "nsz"}, error_model="numpy", cache=True)
_summing = numba.njit(nogil=True, fastmath={"reassoc", "contract"}, error_model="numpy", cache=True)


def top_k(scores: Tensor, k: int, indptr: NDArray[np.int64], items: NDArray[np.int64]) -> tuple[Tensor, Tensor, bool]:
    """See :func:`graphmill.kernels.top_k.top_k`; ``scores`` contiguous, on the CPU. And whether all scores are finite."""
    rows, columns = scores.shape
    k = min(k, columns)
    values = torch.full((rows, k), -torch.inf, dtype=scores.dtype)
    found = torch.full((rows, k), _NOWHERE, dtype=torch.int64)
    numbers, finite = scores.numpy(), np.ones(rows, np.bool_)
    arrays = (numbers, indptr, items, values.numpy(), found.numpy(), finite)
    over_ranges(_search_ranges, (*arrays, *map(numbers.dtype.type, (-np.inf, 0))), rows, scores.numel())
    return values, found, bool(finite.all())


@_jit
def _worse(value: Any, place: int, other: Any, other_place: int) -> bool:
    return value < other or (value == other and place > other_place)


@_jit
def _sink(heap: Any, place: Any, at: int, size: int) -> None:
    """The root of the heap is the worst of all."""
    while True:
        low = 2 * at + 1
        if low >= size:
            return
        if low + 1 < size and _worse(heap[low + 1], place[low + 1], heap[low], place[low]):
            low += 1
        if not _worse(heap[low], place[low], heap[at], place[at]):
            return
        heap[low], heap[at] = heap[at], heap[low]
        place[low], place[at] = place[at], place[low]
        at = low


@_jit
def _bound(maxima: Any, k: int, lowest: Any) -> Any:
    """A number that at least k of the ``maxima`` reach, and not many more: by bisection, each time over all of them."""
    least, most, there = -lowest, lowest, 0
    for b in range(len(maxima)):
        if maxima[b] > lowest:
            there += 1
            least = maxima[b] if maxima[b] < least else least
            most = maxima[b] if maxima[b] > most else most
    if there < k:
        return lowest
    for _ in range(_TURNS):
        middle = least + (most - least) / 2
        reached = np.int32(0)
        for b in range(len(maxima)):
            reached += np.int32(maxima[b] >= middle)
        if reached < k:
            most = middle
        else:
            least = middle
            if reached <= k + k // 8:
                break
    return least


@_summing
def _maxima(line: Any, at: int, columns: int, maxima: Any, lowest: Any, zero: Any) -> bool:
    """The highest number of each block, and whether all numbers are finite."""
    wrong = spread(zero)
    whole = columns // _BLOCK
    for b in range(whole):
        here = at + b * _BLOCK
        x0, x1 = load(line, here), load(line, here + LANES)
        x2, x3 = load(line, here + 2 * LANES), load(line, here + 3 * LANES)
        wrong += larger(larger(not_finite(x0), not_finite(x1)), larger(not_finite(x2), not_finite(x3)))
        maxima[b] = highest(larger(larger(x0, x1), larger(x2, x3)))
    finite = total(wrong) == zero
    if whole * _BLOCK < columns:
        maxima[whole] = lowest
        for j in range(at + whole * _BLOCK, at + columns):
            finite = finite and np.isfinite(line[j])
            maxima[whole] = line[j] if line[j] > maxima[whole] else maxima[whole]
    return bool(finite)


@_jit
def _candidates(
    line: Any, at: int, columns: int, maxima: Any, bound: Any, left_out: Any, some: Any, where: Any, lowest: Any
) -> int:
    """How many numbers reach the bound; as many of them as there is room for, with their places, lowest place first."""
    size = 0
    for b in range(len(maxima)):
        if maxima[b] < bound:
            continue
        for begin in range(b * _BLOCK, min((b + 1) * _BLOCK, columns), LANES):
            if begin + LANES <= columns and highest(load(line, at + begin)) < bound:
                continue
            for j in range(begin, min(begin + LANES, columns)):
                if line[at + j] < bound:
                    continue
                value = lowest if left_out[j] else line[at + j]
                if value >= bound:
                    if size < len(some):
                        some[size], where[size] = value, j
                    size += 1
    return size


_MOST = 1024
"""Candidates that are compared all with all, at most: of more a heap's branches cost less."""


@_jit
def _in_order(some: Any, where: Any, size: int, values: Any, found: Any, k: int) -> None:
    """The k highest, best first: each goes where the number of better ones says. Of equal ones the first is better.

    That compares all with all, but in whole vectors and without a branch; a heap's branches are as often guessed wrong.
    """
    for i in range(size):
        own, rank = some[i], np.int32(0)
        for j in range(i):
            rank += np.int32(some[j] >= own)
        for j in range(i + 1, size):
            rank += np.int32(some[j] > own)
        if rank < k:
            values[rank], found[rank] = own, where[i]


@_jit
def _by_heap(line: Any, maxima: Any, bound: Any, left_out: Any, heap: Any, place: Any, lowest: Any, k: int) -> None:
    """The same, for any number of candidates: where many are equal there may be as many as numbers."""
    for b in range(len(maxima)):
        if maxima[b] < bound:
            continue
        for j in range(b * _BLOCK, min((b + 1) * _BLOCK, len(line))):
            if line[j] < bound:
                continue
            value = lowest if left_out[j] else line[j]
            if value >= bound and _worse(heap[0], place[0], value, j):
                heap[0], place[0] = value, j
                _sink(heap, place, 0, k)
    for size in range(k - 1, 0, -1):
        heap[0], heap[size] = heap[size], heap[0]
        place[0], place[size] = place[size], place[0]
        _sink(heap, place, 0, size)


@_jit
def _search(
    scores: Any,
    indptr: Any,
    items: Any,
    values: Any,
    found: Any,
    finite: Any,
    lowest: Any,
    zero: Any,
    first: int,
    last: int,
) -> None:
    k, columns = values.shape[1], scores.shape[1]
    count = -(-columns // _BLOCK)
    maxima, left_out, numbers = np.empty(count, scores.dtype), np.zeros(columns, np.bool_), address(scores)
    room = min(4 * k + _BLOCK, _MOST)
    some, where = np.empty(room, scores.dtype), np.empty(room, np.int64)
    for row in range(first, last):
        line, heap, place = scores[row], values[row], found[row]
        if not _maxima(numbers, row * columns, columns, maxima, lowest, zero):
            finite[row] = False
            continue
        for e in range(indptr[row], indptr[row + 1]):
            left_out[items[e]] = True
        for e in range(indptr[row], indptr[row + 1]):
            b = items[e] // _BLOCK
            if line[items[e]] == maxima[b]:
                maxima[b] = lowest
                for j in range(b * _BLOCK, min((b + 1) * _BLOCK, columns)):
                    if line[j] > maxima[b] and not left_out[j]:
                        maxima[b] = line[j]
        bound = _bound(maxima, k, lowest)
        size = _candidates(numbers, row * columns, columns, maxima, bound, left_out, some, where, lowest)
        if size <= len(some):
            _in_order(some, where, size, heap, place, k)
        else:
            _by_heap(line, maxima, bound, left_out, heap, place, lowest, k)
        for e in range(indptr[row], indptr[row + 1]):
            left_out[items[e]] = False


@_jit
def _search_ranges(arguments: Any, first: int, last: int, team: Any) -> None:
    in_ranges(_search, arguments, first, last, team)
