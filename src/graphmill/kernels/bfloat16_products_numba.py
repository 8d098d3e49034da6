"""Matrix products of bfloat16 on the CPU, compiled: pairs of terms in one instruction, sums in fp32.

Blocks of six rows and 64 columns in registers, as in ``products_numba``; here each turn of the loop takes two terms
(``vdpbf16ps``). Both sides may be fp32 or bfloat16 in memory and either rows or columns may lie side by side: what is not
in pairs of terms already is rounded and put into pairs while it is packed, so that no rounded copy of a whole operand is
written. The right side is packed into panels of 64 columns; of the left, rows of bfloat16 are read where they stand, others
are packed, 96 rows at a time. The result is bfloat16, rounded once, or fp32.

Threads take rows of the result; each number is the sum of the same terms in the same order however many there are.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numba import types
from numba.extending import overload
from torch import Tensor

from graphmill.kernels.bfloat16_blocks import PANEL, six_rows, store_low, store_pairs
from graphmill.kernels.products_numba import SIX
from graphmill.kernels.runtime.compiled_math import FAST
from graphmill.kernels.runtime.jit import jit
from graphmill.kernels.runtime.register_block import transpose
from graphmill.kernels.runtime.team import in_ranges, over_ranges
from graphmill.kernels.runtime.vectors import (
    LANES,
    LINE,
    hold,
    like,
    load,
    load_first,
    numbers_as,
    numbers_at,
    padded,
    spread,
    store,
    store_first,
    store_low_first,
    whole_lines,
)

_jit = jit(nogil=True, fastmath=FAST, error_model="numpy")
_TOGETHER = 96
"""Rows of the left matrix that meet all panels before the next ones do."""
_PACKED = 1 << 19
"""Pairs of the right matrix packed at a time, at most: 2 MiB."""
WHOLE_TERMS = 2048
"""Sums of so many terms are made in one go; longer ones in parts, which are added up in an fp32 result."""
_PART_TERMS = 512
_SHARE = 64
"""Products that take as long as one element-wise operation, for the decision how many threads take part."""
_KINDS = {torch.float32: np.empty(0, np.float32), torch.bfloat16: np.empty(0, np.uint16)}
_PAIRS = np.empty(0, np.uint32)


def product_(out: Tensor, left: Tensor, right: Tensor, bias: Tensor | None, onto: bool) -> None:
    """``out`` [n, m] becomes left [n, k] · right [k, m] (+ ``bias`` [m]), or, ``onto`` and without ``bias``, has it added.

    Each fp32 or bfloat16, products of operands rounded to bfloat16. Of more than ``WHOLE_TERMS`` terms ``out`` is fp32.
    Columns of ``out`` lie side by side; in ``left`` and ``right`` either rows or columns do.
    """
    (rows, terms), columns = left.shape, right.shape[1]
    if right.stride(1) != 1 and (right.dtype != torch.bfloat16 or right.stride(1) % 2):
        right = right.to(torch.bfloat16).contiguous()
    if 1 not in left.stride():
        left = left.contiguous()
    more = None if bias is None else bias.float()
    kinds = (_KINDS[left.dtype], _KINDS[right.dtype], _KINDS[out.dtype], _PAIRS)
    arrays = (left.data_ptr(), *left.stride(), right.data_ptr(), *right.stride(), out.data_ptr(), out.stride(0))
    rest = (0 if more is None else more.data_ptr(), onto, rows, terms, columns)
    over_ranges(_product_ranges, (*kinds, *arrays, *rest), -(-rows // SIX), rows * terms * columns // _SHARE)


@_jit
def _pack_right(kind, right, row, column, terms, columns, packed):  # type: ignore[no-untyped-def]
    """Panels of 64 columns, the last one narrower and filled up with zeros; in each, pair of terms after pair.

    Addresses in bytes.
    """
    numbers, out = numbers_as(kind, right), numbers_as(_PAIRS, packed)
    # What lies in pairs already is moved as numbers of 32 bits.
    words, out_words = numbers_at(right), numbers_at(packed)
    pairs = (terms + 1) // 2
    for c in range(0, columns, PANEL):
        wide, base = padded(min(PANEL, columns - c)), c * pairs
        for v in range(0, wide, LANES):
            count = columns - c - v
            if column == 1:
                for t in range(0, terms, 2):
                    at = t * row + c + v
                    even = load_first(numbers, at, count)
                    odd = load_first(numbers, at + row, count) if t + 1 < terms else spread(like(words[0], 0))
                    store_pairs(out, base + t // 2 * wide + v, even, odd)
                continue
            whole = terms // 2 - terms // 2 % LANES if count >= LANES else 0
            for t in range(0, whole, LANES):
                transpose(words, (c + v) * (column // 2) + t, column // 2, out_words, base + t * wide + v, wide)
            for lane in range(LANES):
                for t in range(whole, pairs):
                    at = (c + v + lane) * column + 2 * t
                    both = np.uint32(0)
                    if lane < count:
                        both = np.uint32(numbers[at])
                        if 2 * t + 1 < terms:
                            both |= np.uint32(numbers[at + 1]) << np.uint32(16)
                    out[base + t * wide + v + lane] = both


@_jit
def _pack_left(left, at, row, column, terms, rows, room):  # type: ignore[no-untyped-def]
    """``rows`` rows in pairs of terms: each row's side by side, or, where a term's lie side by side, these."""
    if column == 1:
        line = padded(terms)
        for r in range(rows):
            for t in range(0, terms, LANES):
                store_low(room, r * line // 2 + t // 2, load_first(left, at + r * row + t, terms - t))
        return
    line = padded(rows + SIX)
    for t in range(0, terms, 2):
        here = at + t * column
        for r in range(0, rows, LANES):
            even = load_first(left, here + r, rows - r)
            odd = load_first(left, here + column + r, rows - r if t + 1 < terms else 0)
            store_pairs(room, t // 2 * line + r, even, odd)


def _finish(kind: Any, tile: Any, out: Any, to: Any, pitch: Any, rows: Any, count: Any) -> None:
    """Some rows of a tile to ``out``, ``count`` columns, in the kind of numbers that it has."""
    raise NotImplementedError("compiled code only")  # numba puts the overload below in its place


@overload(_finish)
def _finished(kind, tile, out, to, pitch, rows, count):  # type: ignore[no-untyped-def]
    if kind.dtype == types.uint16:

        def low(kind, tile, out, to, pitch, rows, count):  # type: ignore[no-untyped-def]
            for r in range(rows):
                for v in range(0, count, LANES):
                    store_low_first(out, to + r * pitch + v, load(tile, r * PANEL + v), count - v)

        return low

    def full(kind, tile, out, to, pitch, rows, count):  # type: ignore[no-untyped-def]
        for r in range(rows):
            for v in range(0, count, LANES):
                store_first(out, to + r * pitch + v, load(tile, r * PANEL + v), count - v)

    return full


@_jit
def _rows_and_panels(  # type: ignore[no-untyped-def]
    kind, left, at, row, step, packed, base, pairs, columns, rows, bias, of_bias, begins, out, to, pitch, onto, tile
):
    """Some rows times all panels, a panel after the other. Sums begin with a bias, what is there, or nothing."""
    for c in range(0, columns, PANEL):
        wide = padded(min(PANEL, columns - c))
        count, beside = min(wide, columns - c), base + c * pairs
        for r in range(0, rows, SIX):
            here, there, some = at + r * row, to + r * pitch + c, min(SIX, rows - r)
            begun = begins or onto
            if begins:
                for v in range(0, wide, LANES):
                    first = load_first(bias, of_bias + c + v, count - v)
                    for i in range(SIX):
                        store(tile, i * PANEL + v, first)
            elif onto:
                for i in range(some):
                    for v in range(0, wide, LANES):
                        store(tile, i * PANEL + v, load_first(out, there + i * pitch + v, count - v))
            six_rows(left, here, row, step, packed, beside, wide, wide, pairs, tile, 0, PANEL, begun)
            _finish(kind, tile, out, there, pitch, some, count)


@_jit
def _product(  # type: ignore[no-untyped-def]
    left_kind, right_kind, out_kind, pair_kind, left, left_row, left_column, right, right_row, right_column, out, out_row,
    bias, onto, rows, terms, columns, first, last,
):  # fmt: skip
    if first >= last:
        return
    a, y, more = numbers_as(left_kind, left), numbers_as(out_kind, out), numbers_at(bias)
    words = numbers_as(pair_kind, left)
    top, bottom = first * SIX, min(last * SIX, rows)
    part = terms if terms <= WHOLE_TERMS else _PART_TERMS
    widest = min(padded(columns), max(_PACKED // ((min(terms, WHOLE_TERMS) + 1) // 2) // PANEL, 1) * PANEL)
    deepest = min(terms, max(2 * _PACKED // widest // part, 1) * part)
    panels = np.empty(widest * ((deepest + 1) // 2) + LANES, np.uint32)
    rooms = np.empty((_TOGETHER + LANES + SIX) * (padded(part) // 2) + LANES, np.uint32)
    tiles = np.empty(SIX * PANEL + LANES, np.float32)
    packed, room, tile = whole_lines(panels), whole_lines(rooms), whole_lines(tiles)
    packed_at = (panels.ctypes.data + LINE - 1) // LINE * LINE
    # Rows of bfloat16 that begin with whole words are pairs of terms as they are.
    in_place = left_kind.itemsize == 2 and left_column == 1 and left_row % 2 == 0 and terms % 2 == 0
    for c in range(0, columns, widest):
        wide = min(widest, columns - c)
        for d in range(0, terms, deepest):
            depth = min(deepest, terms - d)
            size = right_kind.itemsize
            for t in range(0, depth, part):
                some = min(part, depth - t)
                place = right + size * ((d + t) * right_row + c * right_column)
                _pack_right(
                    right_kind, place, right_row, right_column, some, wide, packed_at + 4 * (t // 2 * padded(wide))
                )
            for high in range(top, bottom, _TOGETHER):
                low = min(high + _TOGETHER, bottom)
                whole = high + (low - high + SIX - 1) // SIX * SIX <= rows
                for t in range(0, depth, part):
                    some = min(part, depth - t)
                    pairs, base = (some + 1) // 2, t // 2 * padded(wide)
                    at, to = high * left_row + (d + t) * left_column, high * out_row + c
                    begins, further = bias != 0 and d + t == 0, onto or d + t > 0
                    if in_place and whole:
                        _rows_and_panels(
                            out_kind, words, at // 2, left_row // 2, 1, packed, base, pairs, wide, low - high, more, c,
                            begins, y, to, out_row, further, tile,
                        )  # fmt: skip
                        continue
                    _pack_left(a, at, left_row, left_column, some, low - high, room)
                    row, step = (padded(some) // 2, 1) if left_column == 1 else (1, padded(low - high + SIX))
                    _rows_and_panels(
                        out_kind, room, 0, row, step, packed, base, pairs, wide, low - high, more, c, begins, y, to, out_row,
                        further, tile,
                    )  # fmt: skip
    hold(panels)
    hold(rooms)
    hold(tiles)


@_jit
def _product_ranges(arguments: Any, first: int, last: int, team: Any) -> None:
    in_ranges(_product, arguments, first, last, team)
