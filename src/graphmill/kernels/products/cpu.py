"""Matrix products of fp32 on the CPU, compiled: blocks of six rows and 64 columns in registers, with a packed right side.

The right matrix is copied into panels of 64 columns (16 for 256-bit registers), a few hundred of its rows at a time, so
that the panels stay in the L2 cache. The left matrix is multiplied with them six rows at a time (the order of BLIS, Van
Zee and van de Geijn 2015, with one level of blocking less: the left matrix is not packed). Transposed operands need no
separate copy. Each thread takes rows of the result. Every number is the sum of the same terms in the same order,
whatever the number of threads.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphmill.kernels.runtime.jit import jit_fast
from graphmill.kernels.runtime.processor import wide_registers
from graphmill.kernels.runtime.register_block import register_block, transpose
from graphmill.kernels.runtime.team import over_ranges
from graphmill.kernels.runtime.vectors import LANES, LINE, hold, like, load_first, numbers_at, padded, store

SIX = 6
"""Rows of a block in registers."""
_PANEL = (4 if wide_registers() else 1) * LANES
"""Columns of a block in registers: six rows of them and the operands fill all registers."""
_COLUMNS = 1024
"""Largest number of columns of the right matrix that are packed at a time."""
_TERMS = 256
"""Number of terms that are summed at a time: a panel of them is 64 KiB."""
_PACKED = 1 << 19
"""Largest size (numbers) of the packed part of the right matrix: 2 MiB."""
_TOGETHER = 96
"""Number of rows of the left matrix that are multiplied with all panels before the next rows: they stay in the L2 cache."""
_PART = 1024
"""Smallest number of terms of a partial sum, for results with few numbers."""
_PARTS = 16
_FEW = 1 << 16
_HALVES, _MANY, _LONG = 2, 1 << 20, 16
"""Larger results, up to :data:`_MANY` numbers, are two partial sums if there are :data:`_LONG` times as many terms as
rows. These are gradients of a whole layer's weights; each thread then packs half of the right side."""
_PIECES = 16
"""Number of pieces in which groups of rows are distributed to threads."""
_SIZE = 4
"""Bytes of a number."""
_SHARE = 32
"""Number of multiplications that take as long as one element-wise operation; used to choose the number of threads."""
_Side = namedtuple("_Side", "at batch row column")
"""A matrix: its address, and the strides of its batches, rows and columns."""
_Product = namedtuple("_Product", "left right out bias onto batches rows most_terms last_terms columns")
_Grouped = namedtuple("_Grouped", "left right out bounds pieces terms columns")

_six_rows, _one_row = (register_block(rows, _PANEL // LANES) for rows in (SIX, 1))


def product_(out: Tensor, left: Tensor, right: Tensor, bias: Tensor | None, onto: bool) -> None:
    """Set ``out`` to left · right (+ ``bias``), or with ``onto`` add to it. [n, k] · [k, m], or [h, n, k] · [h, k, m].

    fp32. ``out`` has column stride 1; ``left`` and ``right`` have row or column stride 1. ``bias`` [m] is not allowed
    with ``onto``.
    """
    if left.dim() == 2:
        rows, terms = left.shape
        numbers = rows * right.shape[1]
        most = _PARTS if numbers <= _FEW else _HALVES if numbers <= _MANY and terms >= _LONG * rows else 1
        parts = min(terms // _PART, most)
        if parts > 1 and bias is None:
            _product_by_parts(out, left, right, onto, parts)
            return
        out, left, right = out[None], left[None], right[None]
    _run(out, left, left.stride(), right, right.stride(), left.shape, bias, onto, left.shape[2])


def _product_by_parts(out: Tensor, left: Tensor, right: Tensor, onto: bool, parts: int) -> None:
    """For long sums, such as gradients of weights: compute partial sums over the terms, then add them up.

    Otherwise each thread would read both operands entirely.
    """
    rows, terms = left.shape
    size = terms // parts
    sums = out.new_empty(parts, *out.shape)
    strides = [(size * left.stride(1), *left.stride()), (size * right.stride(0), *right.stride())]
    _run(sums, left, strides[0], right, strides[1], (parts, rows, size), None, False, terms - (parts - 1) * size)
    if onto:
        out += sums.sum(0)
    else:
        torch.sum(sums, 0, out=out)


def _run(
    out: Tensor, left: Tensor, left_strides: Sequence[int], right: Tensor, right_strides: Sequence[int],
    shape: Sequence[int], bias: Tensor | None, onto: bool, last_terms: int,
) -> None:  # fmt: skip
    """Run the compiled product. ``shape``: batches, rows and terms of the left side; the last batch has ``last_terms``."""
    batches, rows, terms = shape
    columns = out.shape[2]
    sides = (_Side._make((t.data_ptr(), *n)) for t, n in ((left, left_strides), (right, right_strides)))
    onto_bias = 0 if bias is None else bias.data_ptr(), onto
    sizes = batches, rows, terms, last_terms, columns
    into = _Side._make((out.data_ptr(), *out.stride()[:2], 1))
    call = _Product._make((*sides, into, *onto_bias, *sizes))
    units = batches * -(-rows // SIX)
    over_ranges(_product, call, units, batches * rows * terms * columns // _SHARE)


def grouped_product(rows: Tensor, bounds: np.ndarray, matrices: Tensor) -> Tensor:
    """Rows ``bounds[g] : bounds[g + 1]`` of [n, k] times ``matrices[g]`` of [G, k, m]: [n, m]. fp32, all groups at once.

    Rows have column stride 1; matrices may be transposed.
    """
    terms, columns = matrices.shape[1:]
    out = rows.new_empty(len(rows), columns)
    pieces, right = _pieces(bounds), _Side(matrices.data_ptr(), *matrices.stride())
    sides = _Side(rows.data_ptr(), 0, rows.stride(0), 1), right, _Side(out.data_ptr(), 0, columns, 1)
    over_ranges(
        _grouped, _Grouped(*sides, bounds, pieces, terms, columns), len(pieces) - 1, rows.numel() * columns // _SHARE
    )
    return out


def grouped_gradient(rows: Tensor, bounds: np.ndarray, gradient: Tensor) -> Tensor:
    """[G, k, m]: per group of ``rows`` [n, k] and ``gradient`` [n, m], rowsᵀ · gradient; zero for an empty group."""
    terms, columns = rows.shape[1], gradient.shape[1]
    out = rows.new_empty(len(bounds) - 1, terms, columns)
    pieces = _pieces(bounds)
    left, right = (_Side(t.data_ptr(), 0, t.stride(0), 1) for t in (rows, gradient))
    work, into = rows.numel() * columns // _SHARE, _Side(out.data_ptr(), terms * columns, columns, 1)
    over_ranges(_grouped_gradient, _Grouped(left, right, into, bounds, pieces, terms, columns), len(pieces) - 1, work)
    return out


def _pieces(bounds: np.ndarray) -> np.ndarray:
    """Bounds of pieces with about equally many rows, as group numbers."""
    wanted = np.arange(1, _PIECES) * bounds[-1] // _PIECES
    return np.concatenate(([0], np.searchsorted(bounds[:-1], wanted), [len(bounds) - 1]))


@jit_fast
def _pack(right: Any, at: int, row: int, column: int, terms: int, columns: int, packed: Any, to: int) -> None:
    """Pack columns into panels, row by row. The last panel may be narrower, and is zero-padded."""
    for c in range(0, columns, _PANEL):
        wide, base = padded(min(_PANEL, columns - c)), to + c * terms
        for v in range(0, wide, LANES):
            count = columns - c - v
            if column == 1:
                for t in range(terms):
                    store(packed, base + t * wide + v, load_first(right, at + t * row + c + v, count))
                continue
            whole = terms - terms % LANES if count >= LANES and row == 1 else 0
            for t in range(0, whole, LANES):
                transpose(right, at + (c + v) * column + t, column, packed, base + t * wide + v, wide)
            for lane in range(LANES):
                for t in range(whole, terms):
                    place = at + (c + v + lane) * column + t * row
                    packed[base + t * wide + v + lane] = right[place] if lane < count else like(right[at], 0)


@jit_fast
def _rows_and_panels(left: Any, panels: Any, start: Any, out: Any, rows: int, columns: int) -> None:
    """Some rows of the left matrix times all panels, one panel after the other.

    ``left``: address, offset, row stride, column stride; ``panels``: address, offset, terms; ``start`` (initial values
    of the sums): address, offset, row stride, whether they are used; ``out``: address, offset, row stride.
    """
    (a, at, row, step), (packed, base, terms) = left, panels
    (beginning, from_, leap, begun), (y, to, pitch) = start, out
    for c in range(0, columns, _PANEL):
        wide = padded(min(_PANEL, columns - c))
        right, r = (packed, base + c * terms, wide, terms), 0
        while r < rows:
            one, begin = (a, at + r * row, row, step), (beginning, from_ + r * leap + c, leap, begun)
            into = (y, to + r * pitch + c, pitch, columns - c - wide + LANES)
            if rows - r >= SIX:
                _six_rows(one, right, begin, into, wide)
                r += SIX
            else:
                _one_row(one, right, begin, into, wide)
                r += 1


@jit_fast
def whole_blocks(left: Any, right: Any, out: Any, rows: int, columns: int) -> None:
    """out[to + r · pitch + c] = Σ_t left[at + r · row + t · step] · right[beside + t · stride + c]; with ``onto``, add
    to ``out``.

    All are addresses of fp32 or float64 numbers. ``left``: address, at, row, step; ``right``: address, beside, stride,
    terms; ``out``: address, to, pitch, onto. ``left`` and ``out`` must be padded to whole blocks of six rows and 16
    columns; the content of the padding does not matter.
    """
    (a, at, row, step), (b, beside, stride, terms), (y, to, pitch, onto) = left, right, out
    for c in range(0, columns, _PANEL):
        wide = padded(min(_PANEL, columns - c))
        for r in range(0, rows, SIX):
            one, place = (a, at + r * row, row, step), to + r * pitch + c
            _six_rows(one, (b, beside + c, stride, terms), (y, place, pitch, onto), (y, place, pitch, LANES), wide)


@jit_fast
def _product(call: Any, first: int, last: int) -> None:
    """Units ``first:last``, six rows each, of all batches. ``call``: a :data:`_Product`."""
    left, right, out, rows, columns = call.left, call.right, call.out, call.rows, call.columns
    if first >= last:
        return
    a, b, y, more = numbers_at(left.at), numbers_at(right.at), numbers_at(out.at), numbers_at(call.bias)
    units = (rows + SIX - 1) // SIX
    widest = padded(min(columns, _COLUMNS))
    deepest = max(min(max(call.most_terms, call.last_terms), _PACKED // max(widest, 1)), 1)
    buffer = np.empty(widest * deepest + LANES, np.float32)
    # Align to a cache line: an unaligned vector spans two lines.
    packed = numbers_at((buffer.ctypes.data + LINE - 1) // LINE * LINE)
    for batch in range(first // units, (last - 1) // units + 1):
        terms = call.last_terms if batch == call.batches - 1 else call.most_terms
        top = max(first - batch * units, 0) * SIX
        bottom = min((last - batch * units) * SIX, rows)
        for c in range(0, columns, _COLUMNS):
            wide = min(_COLUMNS, columns - c)
            line = padded(wide)
            for d in range(0, max(terms, 1), deepest):
                depth = min(deepest, terms - d)
                panels = packed
                if right.column == 1 and right.row == columns == line <= _PANEL:
                    # The right side is a single panel already.
                    panels = numbers_at(right.at + _SIZE * (batch * right.batch + d * right.row))
                else:
                    for t in range(0, depth, _TERMS):
                        place = batch * right.batch + (d + t) * right.row + c * right.column
                        _pack(b, place, right.row, right.column, min(_TERMS, depth - t), wide, packed, t * line)
                for high in range(top, bottom, _TOGETHER):
                    low = min(high + _TOGETHER, bottom)
                    for t in range(0, max(depth, 1), _TERMS):
                        at = batch * left.batch + high * left.row + (d + t) * left.column
                        to = batch * out.batch + high * out.row + c
                        one, right_part = (a, at, left.row, left.column), (panels, t * line, min(_TERMS, depth - t))
                        start = (y, to, out.row, call.onto or d + t > 0)
                        if call.bias != 0 and d + t == 0:
                            start = (more, c, 0, True)
                        _rows_and_panels(one, right_part, start, (y, to, out.row), low - high, wide)
    hold(buffer)


@jit_fast
def _grouped(call: Any, first: int, last: int) -> None:
    left, right, out, bounds, pieces = call.left, call.right, call.out, call.bounds, call.pieces
    for group in range(pieces[first], pieces[last]):
        begin, rows = bounds[group], bounds[group + 1] - bounds[group]
        one = _Side(left.at + _SIZE * begin * left.row, 0, left.row, 1)
        other = _Side(right.at + _SIZE * group * right.batch, 0, right.row, right.column)
        into = _Side(out.at + _SIZE * begin * out.row, 0, out.row, 1)
        own = _Product(one, other, into, 0, False, 1, rows, call.terms, call.terms, call.columns)
        _product(own, 0, (rows + SIX - 1) // SIX)


@jit_fast
def _grouped_gradient(call: Any, first: int, last: int) -> None:
    left, right, out, bounds, pieces = call.left, call.right, call.out, call.bounds, call.pieces
    for group in range(pieces[first], pieces[last]):
        begin, terms = bounds[group], bounds[group + 1] - bounds[group]
        one = _Side(left.at + _SIZE * begin * left.row, 0, 1, left.row)
        other = _Side(right.at + _SIZE * begin * right.row, 0, right.row, 1)
        into = _Side(out.at + _SIZE * group * out.batch, 0, out.row, 1)
        own = _Product(one, other, into, 0, False, 1, call.terms, terms, terms, call.columns)
        _product(own, 0, (call.terms + SIX - 1) // SIX)
