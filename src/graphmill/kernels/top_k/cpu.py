"""The compiled search of ``top_k``. It computes each block's maximum, then searches only promising blocks.

A number that k of the blocks' maxima reach is a lower bound of the k best: smaller numbers cannot be among them.
"""

from __future__ import annotations

from collections import namedtuple
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from graphmill.kernels.runtime.jit import jit
from graphmill.kernels.runtime.team import over_ranges
from graphmill.kernels.runtime.vector_math import (
    above,
    count_bits,
    exceeding,
    highest,
    highest_of_each,
    larger,
    lowest_bit,
    reaching,
    total,
    unless_finite,
    where_positive,
)
from graphmill.kernels.runtime.vectors import (
    LANES,
    address,
    hold,
    like,
    load,
    load_first,
    load_four,
    padded,
    spread,
    spread_four,
    store,
)

_WIDE, _NARROW = 64, LANES
"""Size of a block. Wide blocks have fewer maxima. Narrow blocks give a tighter bound if there are few blocks for the k."""
_ENOUGH = 2
"""Smallest number of wide blocks for each of the k."""
_NOWHERE = 1 << 62
_TURNS = 40
"""Largest number of bisection steps: the bound need not be tight."""
_Search = namedtuple("_Search", "scores indptr items values found finite")
# Comparisons may assume that there are no NaN; otherwise LLVM would not vectorise a maximum.
_jit = jit(nogil=True, fastmath={"nnan", "nsz"}, error_model="numpy")
_summing = jit(nogil=True, fastmath={"reassoc", "contract"}, error_model="numpy")


def top_k(scores: Tensor, k: int, indptr: NDArray[np.int64], items: NDArray[np.int64]) -> tuple[Tensor, Tensor, bool]:
    """:func:`graphmill.kernels.top_k.top_k` of contiguous ``scores`` on the CPU, and whether all scores are finite."""
    rows, columns = scores.shape
    k = min(k, columns)
    values = torch.full((rows, k), -torch.inf, dtype=scores.dtype)
    found = torch.full((rows, k), _NOWHERE, dtype=torch.int64)
    finite = np.ones(rows, np.bool_)
    call = _Search(scores.numpy(), indptr, items, values.numpy(), found.numpy(), finite)
    over_ranges(_search, call, rows, scores.numel())
    return values, found, bool(finite.all())


@_jit
def _worse(value: Any, place: int, other: Any, other_place: int) -> bool:
    return value < other or (value == other and place > other_place)


@_jit
def _sink(heap: Any, place: Any, at: int, size: int) -> None:
    """Restore the heap order below ``at``. The root of the heap is the worst entry."""
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
def _bound(maxima: Any, count: int, k: int, lowest: Any, zero: Any) -> Any:
    """A number that at least k of the ``maxima`` reach, and few more, by bisection over all of them."""
    nothing, there = spread(lowest), spread(zero)
    smallest, largest = spread(-lowest), nothing
    for b in range(0, count, LANES):
        x = load(maxima, b)
        some = above(x, nothing)
        there += some
        largest = larger(x, largest)
        smallest = where_positive(some * above(smallest, x), x, smallest)
    if total(there) < k:
        return lowest
    least, most = -highest(spread(zero) - smallest), highest(largest)
    for _ in range(_TURNS):
        middle = like(least, least + (most - least) / 2)  # rounded here, so that the count is for the final bound
        reached = 0
        for b in range(0, count, LANES):
            reached += count_bits(reaching(load(maxima, b), middle))
        if reached < k:
            most = middle
        else:
            least = middle
            if reached <= k + k // 8:
                break
    return least


@_summing
def _of_block(numbers: Any, at: int, block: int) -> Any:
    """The elementwise maximum of a block's vectors."""
    x = load(numbers, at)
    if block == _NARROW:
        return x
    return larger(
        larger(x, load(numbers, at + LANES)), larger(load(numbers, at + 2 * LANES), load(numbers, at + 3 * LANES))
    )


@_summing
def _of_four(numbers: Any, at: int, block: int) -> Any:
    """The elementwise maxima of the vectors of four consecutive blocks."""
    return (
        _of_block(numbers, at, block),
        _of_block(numbers, at + block, block),
        _of_block(numbers, at + 2 * block, block),
        _of_block(numbers, at + 3 * block, block),
    )


@_summing
def _maxima(numbers: Any, at: int, columns: int, block: int, maxima: Any, lowest: Any, zero: Any) -> bool:
    """Compute the maximum of each block, and whether all numbers are finite."""
    wrong, more = spread_four(zero), spread(zero)
    whole, tile = columns // block, LANES * block
    tiles = columns // tile
    for t in range(tiles):
        here = at + t * tile
        one, two = _of_four(numbers, here, block), _of_four(numbers, here + tile // 4, block)
        three = _of_four(numbers, here + tile // 2, block)
        four = _of_four(numbers, here + 3 * (tile // 4), block)
        store(maxima, t * LANES, highest_of_each(one + two + three + four))
        # The numbers just read are in the L1 cache.
        for j in range(here, here + tile, 4 * LANES):
            wrong = unless_finite(load_four(numbers, j), wrong)
    for b in range(tiles * LANES, whole):
        maxima[b] = highest(_of_block(numbers, at + b * block, block))
    for j in range(at + tiles * tile, at + whole * block, LANES):
        more = unless_finite(load(numbers, j), more)
    finite = total(wrong) + total(more) == zero
    if whole * block < columns:
        maxima[whole] = lowest
        for j in range(at + whole * block, at + columns):
            finite = finite and np.isfinite(numbers[j])
            maxima[whole] = numbers[j] if numbers[j] > maxima[whole] else maxima[whole]
    return bool(finite)


@_jit
def _bits(count: int) -> int:
    """A mask of the lowest ``count`` bits."""
    return (1 << count) - 1 if count < 64 else -1


@_jit
def _reaching(numbers: Any, at: int, count: int, bound: Any) -> int:
    """Which of ``count`` numbers (at most 64) reach the bound, as bits."""
    if count == _WIDE:
        return reaching(load_four(numbers, at), bound)
    bits = 0
    for j in range(0, count, LANES):
        bits |= reaching(load_first(numbers, at + j, count - j), bound) << j
    return bits & _bits(count)


@_jit
def _candidates(
    numbers: Any, place: Any, maxima: Any, bound: Any, left_out: Any, some: Any, where: Any, room: int, lowest: Any
) -> int:
    """Collect the numbers that reach the bound and their columns, in order of columns; returns how many there are.

    Returns a number above ``room`` if they do not fit.
    """
    at, columns, block = place
    size, count = 0, -(-columns // block)
    for tile in range(0, count, LANES):
        blocks = reaching(load(maxima, tile), bound) & _bits(count - tile)
        while blocks != 0:
            begin = (tile + lowest_bit(blocks)) * block
            blocks &= blocks - 1
            bits = _reaching(numbers, at + begin, min(block, columns - begin), bound)
            while bits != 0:
                j = begin + lowest_bit(bits)
                bits &= bits - 1
                if size == room:
                    return size + 1
                some[size], where[size] = lowest if left_out[j] else numbers[at + j], j
                size += some[size] >= bound
    return size


_MOST = 1024
"""Largest number of candidates that are all compared with each other; for more, a heap is faster."""


@_jit
def _in_order(some: Any, where: Any, size: int, values: Any, found: Any, k: int, lowest: Any) -> None:
    """Write the k highest, best first: the rank of each is the number of better ones. Of equal ones the first is better.

    This compares all pairs, but in whole vectors and without branches. A heap's branches are hard to predict.
    """
    store(some, size, spread(lowest))
    for i in range(size):
        own, rank, group = some[i], 0, i // LANES * LANES
        for j in range(0, group, LANES):
            rank += count_bits(reaching(load(some, j), own))
        rank += count_bits(reaching(load(some, group), own) & _bits(i - group))
        rank += count_bits(exceeding(load(some, group), own) & ~_bits(i - group))
        for j in range(group + LANES, size, LANES):
            rank += count_bits(exceeding(load(some, j), own))
        if rank < k:
            values[rank], found[rank] = own, where[i]


@_jit
def _by_heap(
    line: Any, maxima: Any, block: int, bound: Any, left_out: Any, heap: Any, place: Any, lowest: Any, k: int
) -> None:
    """Like ``_in_order``, for any number of candidates: with many equal scores, all numbers can be candidates."""
    for b in range(-(-len(line) // block)):
        if maxima[b] < bound:
            continue
        for j in range(b * block, min((b + 1) * block, len(line))):
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
def _search(call: Any, first: int, last: int) -> None:
    scores, indptr, items, values, found = call.scores, call.indptr, call.items, call.values, call.found
    lowest, zero = scores.dtype.type(-np.inf), scores.dtype.type(0)
    k, columns = values.shape[1], scores.shape[1]
    block = _WIDE if columns >= _ENOUGH * k * _WIDE else _NARROW
    count, room = -(-columns // block), min(4 * k + _WIDE, _MOST)
    maxima, left_out = np.full(padded(count), lowest, scores.dtype), np.zeros(columns, np.bool_)
    some, where = np.empty(room + LANES, scores.dtype), np.empty(room, np.int64)
    numbers, highs, chosen, places = address(scores), address(maxima), address(some), address(where)
    for row in range(first, last):
        at = row * columns
        if not _maxima(numbers, at, columns, block, highs, lowest, zero):
            call.finite[row] = False
            continue
        for e in range(indptr[row], indptr[row + 1]):
            left_out[items[e]] = True
        for e in range(indptr[row], indptr[row + 1]):
            b = items[e] // block
            if numbers[at + items[e]] == maxima[b]:
                maxima[b] = lowest
                for j in range(b * block, min((b + 1) * block, columns)):
                    if numbers[at + j] > maxima[b] and not left_out[j]:
                        maxima[b] = numbers[at + j]
        bound = _bound(highs, count, k, lowest, zero)
        size = _candidates(numbers, (at, columns, block), highs, bound, left_out, chosen, places, room, lowest)
        if size <= room:
            _in_order(chosen, places, size, values[row], found[row], k, lowest)
        else:
            _by_heap(scores[row], maxima, block, bound, left_out, values[row], found[row], lowest, k)
        for e in range(indptr[row], indptr[row + 1]):
            left_out[items[e]] = False
    hold(maxima)
    hold(some)
    hold(where)
