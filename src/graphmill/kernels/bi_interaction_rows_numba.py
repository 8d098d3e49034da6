"""``bi_interaction`` for CPUs with registers of 512 bits: some rows at a time through the whole layer, products included.

Between the table it reads and the one it writes, a row's sums, products and maps are in the first two caches. In a call of
its own for each operation, all rows of a block went to the third and back between one and the next.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numba
import numpy as np
import torch
from torch import Tensor

from graphmill.kernels.compiled_math import FAST
from graphmill.kernels.dropout import Key
from graphmill.kernels.dropout_numba import mask_numbers, word
from graphmill.kernels.products_numba import SIX, whole_blocks
from graphmill.kernels.propagation import SparseMatrix
from graphmill.kernels.propagation_numba import even_pieces, product, weighted_rows
from graphmill.kernels.team import in_ranges, over_ranges
from graphmill.kernels.vectors import (
    LANES,
    address,
    hold,
    keep,
    like,
    load,
    load_first,
    padded,
    store,
    store_first,
)

_jit = numba.njit(nogil=True, fastmath=FAST, error_model="numpy", cache=True)
_TOGETHER = 8 * SIX
"""Rows that go through the layer together."""
_PARTS = 32
"""Parts of the rows, at most, whose share of the weights' gradients is one sum: these do not depend on the number of
threads."""
_LEAST_PART = 4 * _TOGETHER
_LARGEST = 1 << 15
"""Numbers of a weight, at most: both are in the second cache, with room for the rows."""
_EDGES_OF_A_ROW = 16
"""Edges that take as long as a row's products, more or less."""


def serves(weight: Tensor) -> bool:
    """Whether weights of this size [k, d] are small enough."""
    return weight.numel() <= _LARGEST


def forward(
    matrix: SparseMatrix, nodes: Tensor, weights: Sequence[Tensor], slope: float, p: float, key: Key
) -> tuple[Tensor, Tensor, Tensor]:
    """[N, d] → the result [N, k], the neighbourhoods [N, d], and uint8 [N, k]: bit 0 the sum's sign, bit 1 the product's."""
    nodes = nodes.detach()
    sum_weight, sum_bias, product_weight, product_bias = (w.detach() for w in weights)
    wide, width = sum_weight.shape
    both, biases = nodes.new_zeros(2, width, padded(wide)), nodes.new_zeros(2, padded(wide))
    both[0, :, :wide], both[1, :, :wide] = sum_weight.T, product_weight.T
    biases[0, :wide], biases[1, :wide] = sum_bias, product_bias
    out, around = nodes.new_empty(len(nodes), wide), torch.empty_like(nodes)
    signs = torch.empty(len(nodes), wide, dtype=torch.uint8)
    rows = matrix.forward
    edges = (rows.indptr.numpy(), rows.column.numpy(), rows.value.numpy())
    bounds = even_pieces(edges[0], 0, len(nodes), _EDGES_OF_A_ROW)
    tables = [t.numpy() for t in (nodes, around, out, signs, both, biases)]
    known = (tables[0].dtype.type(slope), *mask_numbers(tables[0], p, key))
    over_ranges(_forward_ranges, (*edges, *tables, bounds, *known), len(bounds) - 1, nodes.numel())
    return out, around, signs


def backward(
    gradient: Tensor,
    matrix: SparseMatrix,
    nodes: Tensor,
    around: Tensor,
    signs: Tensor,
    weights: Sequence[Tensor],
    slope: float,
    p: float,
    key: Key,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Gradients of the nodes and of both weights and biases, in the order of ``bi_interaction``'s."""
    nodes = nodes.detach()
    wide, width = weights[0].shape
    both = nodes.new_zeros(2, wide, padded(width))
    both[0, :, :width], both[1, :, :width] = weights[0].detach(), weights[1].detach()
    size = max(-(-len(nodes) // _PARTS), _LEAST_PART)
    parts = -(-len(nodes) // size)
    # The rows past the last are what a block of six leaves over.
    into_weights = nodes.new_zeros(parts, 2, wide + SIX, padded(width))
    into_biases = nodes.new_zeros(parts, 2, wide)
    to_nodes, to_around = torch.empty_like(nodes), torch.empty_like(nodes)
    tables = [t.numpy() for t in (gradient, nodes, around, signs, both, into_weights, into_biases, to_nodes, to_around)]
    known = (tables[0].dtype.type(slope), *mask_numbers(tables[0], p, key))
    over_ranges(_backward_ranges, (*tables, size, *known), parts, nodes.numel())
    turned = matrix.transpose
    product(turned.indptr, turned.column, turned.value, to_around, out=to_nodes, onto=to_nodes)
    of_weights, of_biases = into_weights.sum(0), into_biases.sum(0)
    of_weights = of_weights[:, :wide, :width]
    return to_nodes, of_weights[0], of_biases[0], of_weights[1], of_biases[1]


@_jit
def _forward(
    indptr: Any, column: Any, value: Any, nodes: Any, around: Any, out: Any, signs: Any, weights: Any, biases: Any,
    bounds: Any, slope: Any, dropping: bool, low: Any, high: Any, threshold: Any, scale: Any, first: int, last: int,
) -> None:  # fmt: skip
    width, wide = nodes.shape[1], out.shape[1]
    inner, outer = padded(width), padded(wide)
    room, mapped = np.empty((2, _TOGETHER, inner), nodes.dtype), np.empty((2, _TOGETHER, outer), nodes.dtype)
    columns, values, source, others = address(column), address(value), address(nodes), address(around)
    into, kept, maps, bias = address(out), address(signs), address(weights), address(biases)
    mixed, found = address(room), address(mapped)
    times, beside = _TOGETHER * inner, _TOGETHER * outer
    zero = like(slope, 0)
    for start in range(bounds[first], bounds[last], _TOGETHER):
        stop = min(start + _TOGETHER, bounds[last])
        for row in range(start, stop):
            own, at = row * width, (row - start) * inner
            weighted_rows(columns, values, indptr[row], indptr[row + 1], source, width, others, -1, others, own)
            for c in range(0, width, LANES):
                a, b = load_first(source, own + c, width - c), load_first(others, own + c, width - c)
                store(mixed, at + c, a + b)
                store(mixed, times + at + c, a * b)
        rows = stop - start
        whole_blocks(mixed, 0, inner, 1, maps, 0, outer, width, False, found, 0, outer, rows, wide)
        whole_blocks(mixed, times, inner, 1, maps, width * outer, outer, width, False, found, beside, outer, rows, wide)
        for row in range(start, stop):
            own, at = row * wide, (row - start) * outer
            for j in range(wide):
                x, y = found[at + j] + bias[j], found[beside + at + j] + bias[outer + j]
                both = (x if x > zero else x * slope) + (y if y > zero else y * slope)
                into[own + j] = both
                kept[own + j] = np.uint8(x > zero) | (np.uint8(y > zero) << np.uint8(1))
            if dropping:
                for c in range(0, wide, LANES):
                    x = keep(load_first(into, own + c, wide - c), own + c, low, high, threshold, scale)
                    store_first(into, own + c, x, wide - c)
    hold(room)
    hold(mapped)


@_jit
def _backward(
    gradient: Any, nodes: Any, around: Any, signs: Any, weights: Any, into_weights: Any, into_biases: Any, to_nodes: Any,
    to_around: Any, size: int, slope: Any, dropping: bool, low: Any, high: Any, threshold: Any, scale: Any, first: int,
    last: int,
) -> None:  # fmt: skip
    width, wide, zero = nodes.shape[1], gradient.shape[1], like(slope, 0)
    inner, outer = padded(width), padded(wide)
    # Blocks of six columns of the maps read a little past their last row.
    room, mapped = np.empty((2, _TOGETHER, inner), nodes.dtype), np.zeros((2, _TOGETHER + 1, outer), nodes.dtype)
    given, source, others, kept = address(gradient), address(nodes), address(around), address(signs)
    maps, into, biases = address(weights), address(into_weights), address(into_biases)
    to_own, to_others = address(to_nodes), address(to_around)
    mixed, back = address(room), address(mapped)
    times, beside, second = _TOGETHER * inner, (_TOGETHER + 1) * outer, (wide + SIX) * inner
    for part in range(first, last):
        sums, shares = part * 2 * second, part * 2 * wide
        for start in range(part * size, min((part + 1) * size, len(nodes)), _TOGETHER):
            stop = min(start + _TOGETHER, (part + 1) * size, len(nodes))
            for row in range(start, stop):
                own, at = row * wide, (row - start) * outer
                for j in range(wide):
                    g = given[own + j]
                    if dropping:
                        g *= scale if word(own + j, low, high) >= threshold else zero
                    x = g if kept[own + j] & np.uint8(1) else g * slope
                    y = g if kept[own + j] & np.uint8(2) else g * slope
                    back[at + j] = x
                    back[beside + at + j] = y
                    biases[shares + j] += x
                    biases[shares + wide + j] += y
                own, at = row * width, (row - start) * inner
                for c in range(0, width, LANES):
                    a, b = load_first(source, own + c, width - c), load_first(others, own + c, width - c)
                    store(mixed, at + c, a + b)
                    store(mixed, times + at + c, a * b)
            rows = stop - start
            whole_blocks(back, 0, 1, outer, mixed, 0, inner, rows, True, into, sums, inner, wide, width)
            whole_blocks(
                back, beside, 1, outer, mixed, times, inner, rows, True, into, sums + second, inner, wide, width
            )
            whole_blocks(back, 0, outer, 1, maps, 0, inner, wide, False, mixed, 0, inner, rows, width)
            whole_blocks(
                back, beside, outer, 1, maps, wide * inner, inner, wide, False, mixed, times, inner, rows, width
            )
            for row in range(start, stop):
                own, at = row * width, (row - start) * inner
                for c in range(0, width, LANES):
                    count = width - c
                    plus, product_ = load(mixed, at + c), load(mixed, times + at + c)
                    a, b = load_first(source, own + c, count), load_first(others, own + c, count)
                    store_first(to_own, own + c, plus + product_ * b, count)
                    store_first(to_others, own + c, plus + product_ * a, count)
    hold(room)
    hold(mapped)


@_jit
def _forward_ranges(arguments: Any, first: int, last: int, team: Any) -> None:
    in_ranges(_forward, arguments, first, last, team)


@_jit
def _backward_ranges(arguments: Any, first: int, last: int, team: Any) -> None:
    in_ranges(_backward, arguments, first, last, team)
