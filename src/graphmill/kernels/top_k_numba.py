"""The compiled search of ``top_k``: the highest number of each block first, then only the blocks that can hold one of the k.

What k of the blocks' maxima reach is a bound: k numbers are at least that high, so what is lower is none of the k best.
With S blocks, block b has the columns b, b + S, b + 2 S and so on: then the maxima of many blocks are taken side by side.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from graphmill.kernels.team import in_ranges, over_ranges

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
def _bound(highest: Any, k: int, lowest: Any) -> Any:
    """A number that at least k of the ``highest`` reach, and not many more: by bisection, each time over all of them."""
    least, most, there = -lowest, lowest, 0
    for b in range(len(highest)):
        if highest[b] > lowest:
            there += 1
            least = highest[b] if highest[b] < least else least
            most = highest[b] if highest[b] > most else most
    if there < k:
        return lowest
    for _ in range(_TURNS):
        middle = least + (most - least) / 2
        reached = np.int32(0)
        for b in range(len(highest)):
            reached += np.int32(highest[b] >= middle)
        if reached < k:
            most = middle
        else:
            least = middle
            if reached <= k + k // 8:
                break
    return least


@_summing
def _all_finite(line: Any, zero: Any) -> bool:
    """0 · x is 0 for every finite x, and NaN for an infinity and for NaN."""
    total = zero
    for j in range(len(line)):
        total += line[j] * zero
    return bool(total == zero)


@_jit
def _maxima(line: Any, highest: Any, lowest: Any) -> None:
    count, columns = len(highest), len(line)
    highest[:] = lowest
    for start in range(0, columns - count + 1, count):
        part = line[start : start + count]
        for b in range(count):
            highest[b] = part[b] if part[b] > highest[b] else highest[b]
    for j in range(columns - columns % count, columns):
        b = j % count
        highest[b] = line[j] if line[j] > highest[b] else highest[b]


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
    highest, left_out = np.empty(count, scores.dtype), np.zeros(columns, np.bool_)
    for row in range(first, last):
        line, heap, place = scores[row], values[row], found[row]
        if not _all_finite(line, zero):
            finite[row] = False
            continue
        _maxima(line, highest, lowest)
        for e in range(indptr[row], indptr[row + 1]):
            left_out[items[e]] = True
        for e in range(indptr[row], indptr[row + 1]):
            b = items[e] % count
            if line[items[e]] == highest[b]:
                highest[b] = lowest
                for j in range(b, columns, count):
                    if line[j] > highest[b] and not left_out[j]:
                        highest[b] = line[j]
        bound = _bound(highest, k, lowest)
        for b in range(count):
            if highest[b] < bound:
                continue
            for j in range(b, columns, count):
                if line[j] < bound:
                    continue
                value = lowest if left_out[j] else line[j]
                if value >= bound and _worse(heap[0], place[0], value, j):
                    heap[0], place[0] = value, j
                    _sink(heap, place, 0, k)
        for e in range(indptr[row], indptr[row + 1]):
            left_out[items[e]] = False
        for size in range(k - 1, 0, -1):
            heap[0], heap[size] = heap[size], heap[0]
            place[0], place[size] = place[size], place[0]
            _sink(heap, place, 0, size)


@_jit
def _search_ranges(arguments: Any, first: int, last: int, team: Any) -> None:
    in_ranges(_search, arguments, first, last, team)
