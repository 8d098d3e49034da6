"""``bi_interaction`` for the CPU, compiled: computes the whole layer for one block of rows at a time.

All intermediate values of a row stay in the L1 and L2 caches. With a separate call for each operation, they would go to
the L3 cache and back between operations.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from graphmill.kernels.bi_interaction.sparse_rows import add_product_, even_pieces, weighted_rows
from graphmill.kernels.products.cpu import SIX, whole_blocks
from graphmill.kernels.propagation import SparseMatrix
from graphmill.kernels.runtime.jit import jit_fast
from graphmill.kernels.runtime.team import over_ranges
from graphmill.kernels.runtime.vector_math import keep, positive_bits, where_bits, where_positive
from graphmill.kernels.runtime.vectors import (
    LANES,
    address,
    hold,
    like,
    load,
    load_first,
    padded,
    spread,
    store,
    store_first,
)
from graphmill.kernels.runtime.words import Key, mask_numbers

_TOGETHER = 8 * SIX
"""Number of rows in a block."""
_PARTS = 32
"""Largest number of parts of the rows. Each part gives one partial sum of the weights' gradients, so that the result
does not depend on the number of threads."""
_LEAST_PART = 4 * _TOGETHER
_DEARER = 8
"""Largest ratio of the time of an edge in :func:`_spread` to that of an edge in the product with the transposed matrix."""
_EDGES_OF_A_ROW = 16
"""About as many edges take as long as the matrix products of one row."""
_Forward = namedtuple(
    "_Forward", "indptr column value nodes around out signs weights biases bounds "
    "chosen placed slope dropping low high threshold scale",
)  # fmt: skip
_Backward = namedtuple(
    "_Backward", "gradient nodes around signs weights shares to_nodes to_around size along "
    "chosen placed slope dropping low high threshold scale",
)  # fmt: skip


def forward(
    matrix: SparseMatrix, nodes: Tensor, weights: Sequence[Tensor], slope: float, p: float, key: Key,
    chosen: Tensor | None = None, placed: bool = False,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """[N, d] → the result [N, k], the neighbourhoods [N, d], and the signs of the two maps as bits, uint16 [N, 2, k / 16].

    With ``chosen`` int64 [n], all three have only those rows. ``placed``: the result has all N rows, with zeros in the
    others.
    """
    nodes = nodes.detach()
    sum_weight, sum_bias, product_weight, product_bias = (w.detach() for w in weights)
    wide, width = sum_weight.shape
    both, biases = _side_by_side(sum_weight.T, product_weight.T), _side_by_side(sum_bias, product_bias)
    count = len(nodes) if chosen is None else len(chosen)
    out = nodes.new_zeros(len(nodes), wide) if placed else nodes.new_empty(count, wide)
    around = nodes.new_empty(count, width)
    signs = torch.empty(count, 2, padded(wide) // LANES, dtype=torch.uint16)
    rows = matrix.forward
    edges = (rows.indptr.numpy(), rows.column.numpy(), rows.value.numpy())
    bounds = _pieces(edges[0], chosen)
    tables = [t.numpy() for t in (nodes, around, out, signs, both, biases)]
    known = (_numbers(chosen), placed, tables[0].dtype.type(slope), *mask_numbers(tables[0], p, key))
    over_ranges(_forward, _Forward._make((*edges, *tables, bounds, *known)), len(bounds) - 1, around.numel())
    return out, around, signs


def backward(
    gradient: Tensor, matrix: SparseMatrix, nodes: Tensor, around: Tensor, signs: Tensor, weights: Sequence[Tensor],
    slope: float, mask: tuple[float, Key], chosen: Tensor | None = None, placed: bool = False,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """Gradients of the nodes and of both weights and biases, in the order of ``bi_interaction``'s arguments.

    ``gradient`` is the gradient of :func:`forward`'s result (of all nodes if it is ``placed``). ``mask``: dropout's
    rate and key."""
    nodes, (p, key) = nodes.detach(), mask
    wide, width = weights[0].shape
    both = _side_by_side(weights[0].detach(), weights[1].detach())
    size = max(-(-len(around) // _PARTS), _LEAST_PART)
    parts = -(-len(around) // size)
    # For each map the weight's gradient, padding rows for the last block of six, and from row wide + 6 on the bias's
    # gradient.
    shares = nodes.new_empty(parts, 2, wide + SIX + -(-wide // padded(width)), padded(width))
    made = torch.empty_like if chosen is None else torch.zeros_like
    # For few rows, add the neighbourhoods' gradients along these rows' edges; for many, multiply by the transposed matrix.
    along = chosen is not None and _few_edges(matrix, chosen)
    to_nodes, to_around = made(nodes), torch.empty_like(around) if along else made(nodes)
    tables = [t.numpy() for t in (gradient, nodes, around, signs, both, shares, to_nodes, to_around)]
    known = (along, _numbers(chosen), placed, tables[0].dtype.type(slope), *mask_numbers(tables[0], p, key))
    over_ranges(_backward, _Backward._make((*tables, size, *known)), parts, around.numel())
    if along:
        rows = matrix.forward
        edges = [t.numpy() for t in (rows.indptr, rows.column, rows.value)]
        arrays = (*edges, _numbers(chosen), to_around.numpy(), to_nodes.numpy())
        over_ranges(_spread, arrays, padded(width) // LANES, LANES * around.numel())
    else:
        turned = matrix.transpose
        add_product_(turned.indptr, turned.column, turned.value, to_around, to_nodes)
    of_sum, of_product = shares.sum(0)
    sum_bias, product_bias = (of_map[wide + SIX :].flatten()[:wide] for of_map in (of_sum, of_product))
    return to_nodes, of_sum[:wide, :width], sum_bias, of_product[:wide, :width], product_bias


def _few_edges(matrix: SparseMatrix, chosen: Tensor) -> bool:
    """Whether to add along these rows' edges, which is slower per edge: all threads read all edges; writes are random."""
    indptr = matrix.forward.indptr
    edges = int((indptr[chosen + 1] - indptr[chosen]).sum())
    return edges * _DEARER < matrix.forward.column.numel()


def _side_by_side(left: Tensor, right: Tensor) -> Tensor:
    """Stack two [..., d] into [2, ..., padded(d)], padded with zeros."""
    both = torch.stack((left, right))
    more = padded(both.shape[-1]) - both.shape[-1]
    return F.pad(both, (0, more)) if more else both


def _numbers(chosen: Tensor | None) -> np.ndarray:
    """The rows to compute; empty: all."""
    return np.zeros(0, np.int64) if chosen is None else chosen.numpy()


def _pieces(indptr: np.ndarray, chosen: Tensor | None) -> np.ndarray:
    """Bounds of pieces of rows with about as much work each."""
    if chosen is not None:
        rows = chosen.numpy()
        indptr = np.concatenate((np.zeros(1, np.int64), np.cumsum(indptr[rows + 1] - indptr[rows])))
    return even_pieces(indptr, _EDGES_OF_A_ROW)


@jit_fast
def _forward(call: Any, first: int, last: int) -> None:
    indptr, signs, bounds, chosen = call.indptr, call.signs, call.bounds, call.chosen
    width, wide = call.nodes.shape[1], call.out.shape[1]
    inner, outer = padded(width), padded(wide)
    room, mapped = np.empty((2, _TOGETHER, inner), call.nodes.dtype), np.empty((2, _TOGETHER, outer), call.nodes.dtype)
    columns, values, source = address(call.column), address(call.value), address(call.nodes)
    others, into, maps, bias = address(call.around), address(call.out), address(call.weights), address(call.biases)
    mixed, found = address(room), address(mapped)
    times, beside = _TOGETHER * inner, _TOGETHER * outer
    steep, some = spread(call.slope), len(chosen) > 0
    for start in range(bounds[first], bounds[last], _TOGETHER):
        stop = min(start + _TOGETHER, bounds[last])
        for row in range(start, stop):
            node = chosen[row] if some else row
            own, here, at = row * width, node * width, (row - start) * inner
            weighted_rows(columns, values, indptr[node], indptr[node + 1], source, width, others, -1, others, own)
            for c in range(0, width, LANES):
                a, b = load_first(source, here + c, width - c), load_first(others, own + c, width - c)
                store(mixed, at + c, a + b)
                store(mixed, times + at + c, a * b)
        rows = stop - start
        for half in range(2):
            left, right = (mixed, half * times, inner, 1), (maps, half * width * outer, outer, width)
            whole_blocks(left, right, (found, half * beside, outer, False), rows, wide)
        for row in range(start, stop):
            own, at = row * wide, (row - start) * outer
            place = chosen[row] * wide if some else own
            for c in range(0, wide, LANES):
                x, y = load(found, at + c) + load(bias, c), load(found, beside + at + c) + load(bias, outer + c)
                signs[row, 0, c // LANES], signs[row, 1, c // LANES] = positive_bits(x), positive_bits(y)
                result = where_positive(x, x, x * steep) + where_positive(y, y, y * steep)
                if call.dropping:
                    result = keep(result, place + c, call.low, call.high, call.threshold, call.scale)
                store_first(into, (place if call.placed else own) + c, result, wide - c)
    hold(room)
    hold(mapped)


@jit_fast
def _backward(call: Any, first: int, last: int) -> None:
    around, signs, chosen = call.around, call.signs, call.chosen
    width, wide, some = call.nodes.shape[1], call.gradient.shape[1], len(chosen) > 0
    zero, steep = spread(like(call.slope, 0)), spread(call.slope)
    inner, outer = padded(width), padded(wide)
    # Blocks of six columns of the maps read slightly past the last row.
    room = np.empty((2, _TOGETHER, inner), call.nodes.dtype)
    mapped = np.zeros((2, _TOGETHER + 1, outer), call.nodes.dtype)
    given, source, others = address(call.gradient), address(call.nodes), address(around)
    maps, into = address(call.weights), address(call.shares)
    to_own, to_others = address(call.to_nodes), address(call.to_around)
    mixed, back = address(room), address(mapped)
    times, beside, second = _TOGETHER * inner, (_TOGETHER + 1) * outer, call.shares.shape[2] * inner
    for part in range(first, last):
        sums = part * 2 * second
        biases = sums + (wide + SIX) * inner
        for c in range(0, wide, LANES):
            store(into, biases + c, zero)
            store(into, biases + second + c, zero)
        for start in range(part * call.size, min((part + 1) * call.size, len(around)), _TOGETHER):
            stop = min(start + _TOGETHER, (part + 1) * call.size, len(around))
            for row in range(start, stop):
                node = chosen[row] if some else row
                own, place, at = row * wide, node * wide, (row - start) * outer
                for c in range(0, wide, LANES):
                    g = load_first(given, (place if call.placed else own) + c, wide - c)
                    if call.dropping:
                        g = keep(g, place + c, call.low, call.high, call.threshold, call.scale)
                    x = where_bits(signs[row, 0, c // LANES], g, g * steep)
                    y = where_bits(signs[row, 1, c // LANES], g, g * steep)
                    store(back, at + c, x)
                    store(back, beside + at + c, y)
                    store(into, biases + c, load(into, biases + c) + x)
                    store(into, biases + second + c, load(into, biases + second + c) + y)
                own, here, at = row * width, node * width, (row - start) * inner
                for c in range(0, width, LANES):
                    a, b = load_first(source, here + c, width - c), load_first(others, own + c, width - c)
                    store(mixed, at + c, a + b)
                    store(mixed, times + at + c, a * b)
            rows, begun = stop - start, start > part * call.size
            for half in range(2):
                of_maps, values = (back, half * beside, 1, outer), (mixed, half * times, inner, rows)
                whole_blocks(of_maps, values, (into, sums + half * second, inner, begun), wide, width)
            for half in range(2):
                of_rows, matrix = (back, half * beside, outer, 1), (maps, half * wide * inner, inner, wide)
                whole_blocks(of_rows, matrix, (mixed, half * times, inner, False), rows, width)
            for row in range(start, stop):
                node = chosen[row] if some else row
                own, here, at = row * width, node * width, (row - start) * inner
                for c in range(0, width, LANES):
                    count = width - c
                    plus, product_ = load(mixed, at + c), load(mixed, times + at + c)
                    a, b = load_first(source, here + c, count), load_first(others, own + c, count)
                    store_first(to_own, here + c, plus + product_ * b, count)
                    store_first(to_others, (own if call.along else here) + c, plus + product_ * a, count)
    hold(room)
    hold(mapped)


@jit_fast
def _spread(indptr: Any, column: Any, value: Any, chosen: Any, given: Any, into: Any, first: int, last: int) -> None:
    """Add each row, times the values of its edges, to the rows at their other ends. A thread takes sixteen columns, so
    that no two threads write to one place, and additions are in the order of the rows."""
    width = into.shape[1]
    source, to = address(given), address(into)
    for c in range(first * LANES, min(last * LANES, width), LANES):
        count = width - c
        for row in range(len(chosen)):
            own = load_first(source, row * width + c, count)
            for e in range(indptr[chosen[row]], indptr[chosen[row] + 1]):
                place = column[e] * width + c
                store_first(to, place, load_first(to, place, count) + spread(value[e]) * own, count)
