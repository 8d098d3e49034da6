"""The compiled search of ``top_k``: the highest number of each block first, then only the blocks that can hold one of the k.

The k-th highest of the blocks' maxima is a bound: k numbers are at least that high, so what is lower is none of the k best.
"""

from __future__ import annotations

from typing import Any

import numba
import torch
from torch import Tensor

from graphmill.kernels.team import in_ranges, over_ranges

_jit = numba.njit(nogil=True, error_model="numpy", cache=True)
_BLOCK = 64
_NOWHERE = 1 << 62


def top_k(scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """See :func:`graphmill.kernels.top_k.top_k`; ``scores`` contiguous, on the CPU."""
    rows, columns = scores.shape
    k = min(k, columns)
    blocks = columns // _BLOCK
    highest = scores[:, : blocks * _BLOCK].view(rows, blocks, _BLOCK).amax(2) if blocks else scores.new_empty(rows, 0)
    if blocks >= k:
        least = torch.topk(highest, k, dim=1, sorted=False).values.amin(1)
    else:
        least = scores.new_full((rows,), -torch.inf)
    values = torch.full((rows, k), -torch.inf, dtype=scores.dtype)
    found = torch.full((rows, k), _NOWHERE, dtype=torch.int64)
    arrays = (scores.detach().numpy(), highest.numpy(), least.numpy(), values.numpy(), found.numpy())
    over_ranges(_search_ranges, (*arrays, _BLOCK), rows, scores.numel())
    return values, found


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
def _search(scores: Any, highest: Any, least: Any, values: Any, found: Any, block: int, first: int, last: int) -> None:
    k, columns, blocks = values.shape[1], scores.shape[1], highest.shape[1]
    for row in range(first, last):
        line, heap, place, bound = scores[row], values[row], found[row], least[row]
        for b in range(blocks + 1):
            if b < blocks and highest[row, b] < bound:
                continue
            for j in range(b * block, min((b + 1) * block, columns)):
                if line[j] >= bound and _worse(heap[0], place[0], line[j], j):
                    heap[0], place[0] = line[j], j
                    _sink(heap, place, 0, k)
        for size in range(k - 1, 0, -1):
            heap[0], heap[size] = heap[size], heap[0]
            place[0], place[size] = place[size], place[0]
            _sink(heap, place, 0, size)


@_jit
def _search_ranges(arguments: Any, first: int, last: int, team: Any) -> None:
    in_ranges(_search, arguments, first, last, team)
