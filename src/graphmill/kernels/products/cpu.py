"""Matrix products of fp32 on the CPU, compiled: blocks of six rows and 64 columns in registers, the right side packed.

The right matrix is copied into panels of 64 columns (16 where registers have 256 bits), some hundred of its rows at a time,
so that the panels stay in the second cache; with them meet six rows of the left matrix after the other (the order of BLIS,
Van Zee and van de Geijn 2015, with one level of blocking fewer: rows of the left are read where they stand). Transposed
operands need no copy of their own. Threads take rows of the result; each number is the sum of the same terms in the same
order however many there are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphmill.kernels.runtime.compiled_math import FAST
from graphmill.kernels.runtime.jit import jit
from graphmill.kernels.runtime.processor import wide_registers
from graphmill.kernels.runtime.register_block import register_block, transpose
from graphmill.kernels.runtime.team import over_ranges
from graphmill.kernels.runtime.vectors import LANES, LINE, hold, like, load_first, numbers_at, padded, store

_jit = jit(nogil=True, fastmath=FAST, error_model="numpy")
SIX = 6
"""Rows of a block in registers."""
_PANEL = (4 if wide_registers() else 1) * LANES
"""Columns of a block in registers: six rows of them, and what they are multiplied with, fill all there are."""
_COLUMNS = 1024
"""Columns of the right matrix packed at a time, at most."""
_TERMS = 256
"""Terms that a sum gets at a time: a panel of them is 64 KiB."""
_PACKED = 1 << 19
"""Numbers of the right matrix packed at a time, at most: 2 MiB."""
_TOGETHER = 96
"""Rows of the left matrix that meet all panels before the next ones do: they stay in the second cache."""
_PART = 1024
"""Terms that are worth a sum of their own, at least, where the result has few numbers."""
_PARTS = 16
_FEW = 1 << 16
_HALVES, _MANY, _LONG = 2, 1 << 20, 16
"""Results of more numbers, up to :data:`_MANY`, are two such sums where terms are :data:`_LONG` times as many as rows:
gradients of the weights of whole layers, for which each thread then packs its half of the right side."""
_PIECES = 16
"""Pieces that groups of rows are dealt out in."""
_SIZE = 4
"""Bytes of a number."""
_SHARE = 32
"""Products that take as long as one element-wise operation, for the decision how many threads take part."""

_six_by_four, _six_by_three = register_block(6, 4), register_block(6, 3)
_six_by_two, _six_by_one = register_block(6, 2), register_block(6, 1)
_one_by_four, _one_by_three = register_block(1, 4), register_block(1, 3)
_one_by_two, _one_by_one = register_block(1, 2), register_block(1, 1)


def product_(out: Tensor, left: Tensor, right: Tensor, bias: Tensor | None, onto: bool) -> None:
    """``out`` becomes left · right (+ ``bias``), or, ``onto``, has it added. [n, k] · [k, m], or [h, n, k] · [h, k, m].

    fp32. Columns of ``out`` lie side by side; in ``left`` and ``right`` either rows or columns do. ``bias`` [m], not
    together with ``onto``.
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
    """Numbers that are long sums, as gradients of weights are: each part of the terms by itself, then their sum.

    Otherwise each thread would read both operands whole.
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
    """``shape``: batches, rows and terms of the left side; the last batch has ``last_terms``."""
    batches, rows, terms = shape
    columns = out.shape[2]
    arrays = (left.data_ptr(), *left_strides, right.data_ptr(), *right_strides, out.data_ptr(), *out.stride()[:2])
    more = (0 if bias is None else bias.data_ptr(), onto, batches, rows, terms, last_terms, columns)
    units = batches * -(-rows // SIX)
    over_ranges(_product, (*arrays, *more), units, batches * rows * terms * columns // _SHARE)


def grouped_product(rows: Tensor, bounds: np.ndarray, matrices: Tensor) -> Tensor:
    """Rows ``bounds[g] : bounds[g + 1]`` of [n, k] times ``matrices[g]`` of [G, k, m]: [n, m]. fp32, all groups at once.

    Each row's numbers lie side by side; matrices may be transposed ones.
    """
    terms, columns = matrices.shape[1:]
    out = rows.new_empty(len(rows), columns)
    pieces, right = _pieces(bounds), (matrices.data_ptr(), *matrices.stride())
    arrays = (rows.data_ptr(), rows.stride(0), *right, out.data_ptr(), columns, bounds, pieces, terms, columns)
    over_ranges(_grouped, arrays, len(pieces) - 1, rows.numel() * columns // _SHARE)
    return out


def grouped_gradient(rows: Tensor, bounds: np.ndarray, gradient: Tensor) -> Tensor:
    """[G, k, m]: for each group of ``rows`` [n, k] and ``gradient`` [n, m] the product rowsᵀ · gradient; zero for none."""
    terms, columns = rows.shape[1], gradient.shape[1]
    out = rows.new_empty(len(bounds) - 1, terms, columns)
    pieces = _pieces(bounds)
    arrays = (rows.data_ptr(), rows.stride(0), gradient.data_ptr(), gradient.stride(0), out.data_ptr())
    work = rows.numel() * columns // _SHARE
    over_ranges(_grouped_gradient, (*arrays, bounds, pieces, terms, columns), len(pieces) - 1, work)
    return out


def _pieces(bounds: np.ndarray) -> np.ndarray:
    """Where some pieces of about as many rows each begin, in groups."""
    wanted = np.arange(1, _PIECES) * bounds[-1] // _PIECES
    return np.concatenate(([0], np.searchsorted(bounds[:-1], wanted), [len(bounds) - 1]))


@_jit
def _pack(right: Any, at: int, row: int, column: int, terms: int, columns: int, packed: Any, to: int) -> None:
    """Panels of columns, the last one narrower and filled up with zeros; in each, row after row."""
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


@_jit
def _rows_and_panels(
    left: Any, at: int, row: int, step: int, packed: Any, base: int, terms: int, columns: int, rows: int, start: Any,
    from_: int, leap: int, begun: bool, out: Any, to: int, pitch: int,
) -> None:  # fmt: skip
    """Some rows of the left matrix times all panels, a panel after the other."""
    for c in range(0, columns, _PANEL):
        wide = padded(min(_PANEL, columns - c))
        count = columns - c - wide + LANES
        beside, r = base + c * terms, 0
        while r < rows:
            here, begin, there = at + r * row, from_ + r * leap + c, to + r * pitch + c
            if rows - r >= SIX:
                if wide == 4 * LANES:
                    _six_by_four(
                        left, here, row, step, packed, beside, wide, terms, start, begin, leap, begun, out, there, pitch,
                        count,
                    )  # fmt: skip
                elif wide == 3 * LANES:
                    _six_by_three(
                        left, here, row, step, packed, beside, wide, terms, start, begin, leap, begun, out, there, pitch,
                        count,
                    )  # fmt: skip
                elif wide == 2 * LANES:
                    _six_by_two(
                        left, here, row, step, packed, beside, wide, terms, start, begin, leap, begun, out, there, pitch,
                        count,
                    )  # fmt: skip
                else:
                    _six_by_one(
                        left, here, row, step, packed, beside, wide, terms, start, begin, leap, begun, out, there, pitch,
                        count,
                    )  # fmt: skip
                r += SIX
            else:
                if wide == 4 * LANES:
                    _one_by_four(
                        left, here, row, step, packed, beside, wide, terms, start, begin, leap, begun, out, there, pitch,
                        count,
                    )  # fmt: skip
                elif wide == 3 * LANES:
                    _one_by_three(
                        left, here, row, step, packed, beside, wide, terms, start, begin, leap, begun, out, there, pitch,
                        count,
                    )  # fmt: skip
                elif wide == 2 * LANES:
                    _one_by_two(
                        left, here, row, step, packed, beside, wide, terms, start, begin, leap, begun, out, there, pitch,
                        count,
                    )  # fmt: skip
                else:
                    _one_by_one(
                        left, here, row, step, packed, beside, wide, terms, start, begin, leap, begun, out, there, pitch,
                        count,
                    )  # fmt: skip
                r += 1


@_jit
def whole_blocks(
    left: Any, at: int, row: int, step: int, right: Any, beside: int, stride: int, terms: int, onto: bool, out: Any,
    to: int, pitch: int, rows: int, columns: int,
) -> None:  # fmt: skip
    """out[to + r · pitch + c] = Σ_t left[at + r · row + t · step] · right[beside + t · stride + c], and what is there, with
    ``onto``. Addresses all, fp32 or float64.

    There is room for whole blocks in ``left`` and ``out``, of six rows and of 16 columns; what is in it is of no account.
    """
    for c in range(0, columns, _PANEL):
        wide, b = padded(min(_PANEL, columns - c)), beside + c
        for r in range(0, rows, SIX):
            here, there = at + r * row, to + r * pitch + c
            if wide == 4 * LANES:
                _six_by_four(
                    left, here, row, step, right, b, stride, terms, out, there, pitch, onto, out, there, pitch, LANES
                )
            elif wide == 3 * LANES:
                _six_by_three(
                    left, here, row, step, right, b, stride, terms, out, there, pitch, onto, out, there, pitch, LANES
                )
            elif wide == 2 * LANES:
                _six_by_two(
                    left, here, row, step, right, b, stride, terms, out, there, pitch, onto, out, there, pitch, LANES
                )
            else:
                _six_by_one(
                    left, here, row, step, right, b, stride, terms, out, there, pitch, onto, out, there, pitch, LANES
                )


@_jit
def _product(
    left: int, left_batch: int, left_row: int, left_column: int, right: int, right_batch: int, right_row: int,
    right_column: int, out: int, out_batch: int, out_row: int, bias: int, onto: bool, batches: int, rows: int,
    most_terms: int, last_terms: int, columns: int, first: int, last: int,
) -> None:  # fmt: skip
    if first >= last:
        return
    a, b, y, more = numbers_at(left), numbers_at(right), numbers_at(out), numbers_at(bias)
    units = (rows + SIX - 1) // SIX
    widest = padded(min(columns, _COLUMNS))
    deepest = max(min(max(most_terms, last_terms), _PACKED // max(widest, 1)), 1)
    buffer = np.empty(widest * deepest + LANES, np.float32)
    # Where a vector does not begin with a cache line it takes two.
    packed = numbers_at((buffer.ctypes.data + LINE - 1) // LINE * LINE)
    for batch in range(first // units, (last - 1) // units + 1):
        terms = last_terms if batch == batches - 1 else most_terms
        top = max(first - batch * units, 0) * SIX
        bottom = min((last - batch * units) * SIX, rows)
        for c in range(0, columns, _COLUMNS):
            wide = min(_COLUMNS, columns - c)
            line = padded(wide)
            for d in range(0, max(terms, 1), deepest):
                depth = min(deepest, terms - d)
                panels = packed
                if right_column == 1 and right_row == columns == line <= _PANEL:
                    # One panel, and it is there.
                    panels = numbers_at(right + _SIZE * (batch * right_batch + d * right_row))
                else:
                    for t in range(0, depth, _TERMS):
                        place = batch * right_batch + (d + t) * right_row + c * right_column
                        _pack(b, place, right_row, right_column, min(_TERMS, depth - t), wide, packed, t * line)
                for high in range(top, bottom, _TOGETHER):
                    low = min(high + _TOGETHER, bottom)
                    for t in range(0, max(depth, 1), _TERMS):
                        at = batch * left_batch + high * left_row + (d + t) * left_column
                        to = batch * out_batch + high * out_row + c
                        some = min(_TERMS, depth - t)
                        if bias != 0 and d + t == 0:
                            _rows_and_panels(
                                a, at, left_row, left_column, panels, t * line, some, wide, low - high, more, c, 0, True,
                                y, to, out_row,
                            )  # fmt: skip
                        else:
                            _rows_and_panels(
                                a, at, left_row, left_column, panels, t * line, some, wide, low - high, y, to, out_row,
                                onto or d + t > 0, y, to, out_row,
                            )  # fmt: skip
    hold(buffer)


@_jit
def _grouped(
    left: int, left_row: int, right: int, right_group: int, right_row: int, right_column: int, out: int, out_row: int,
    bounds: Any, pieces: Any, terms: int, columns: int, first: int, last: int,
) -> None:  # fmt: skip
    for group in range(pieces[first], pieces[last]):
        begin, rows = bounds[group], bounds[group + 1] - bounds[group]
        _product(
            left + _SIZE * begin * left_row, 0, left_row, 1, right + _SIZE * group * right_group, 0, right_row, right_column,
            out + _SIZE * begin * out_row, 0, out_row, 0, False, 1, rows, terms, terms, columns, 0,
            (rows + SIX - 1) // SIX,
        )  # fmt: skip


@_jit
def _grouped_gradient(
    left: int, left_row: int, right: int, right_row: int, out: int, bounds: Any, pieces: Any, rows: int, columns: int,
    first: int, last: int,
) -> None:  # fmt: skip
    for group in range(pieces[first], pieces[last]):
        begin, terms = bounds[group], bounds[group + 1] - bounds[group]
        _product(
            left + _SIZE * begin * left_row, 0, 1, left_row, right + _SIZE * begin * right_row, 0, right_row, 1,
            out + _SIZE * group * rows * columns, 0, columns, 0, False, 1, rows, terms, terms, columns, 0,
            (rows + SIX - 1) // SIX,
        )  # fmt: skip
