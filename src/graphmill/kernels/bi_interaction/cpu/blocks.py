"""``bi_interaction`` for the CPU: products by torch, everything between them compiled, ``_ROWS`` rows at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphmill.kernels import products
from graphmill.kernels.dropout.cpu import numbers, word
from graphmill.kernels.propagation import SparseMatrix
from graphmill.kernels.propagation.cpu import even_pieces, product, weighted_rows
from graphmill.kernels.runtime.compiled_math import FAST
from graphmill.kernels.runtime.jit import jit
from graphmill.kernels.runtime.team import over_ranges
from graphmill.kernels.runtime.vectors import address
from graphmill.kernels.runtime.words import Key, threshold_and_scale

_jit = jit(nogil=True, fastmath=FAST, error_model="numpy")
_ROWS = 8192
"""Rows that go through a layer together: their intermediate results stay in the cache, and are allocated once."""
_PART = 256
"""Rows whose share of the biases' gradients is one sum, so that these do not depend on the number of threads."""


def forward(
    matrix: SparseMatrix,
    nodes: Tensor,
    weights: Sequence[Tensor],
    slope: float,
    p: float,
    key: Key,
    chosen: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """[N, d] → the result [N, k], the neighbourhoods [N, d], and uint8 [N, k]: bit 0 the sum's sign, bit 1 the product's.

    With ``chosen`` int64 [n], those rows of the result alone.
    """
    nodes = nodes.detach()
    sum_weight, sum_bias, product_weight, product_bias = (w.detach() for w in weights)
    both, wide = torch.stack((sum_weight.T, product_weight.T)), len(sum_weight)
    out, around = nodes.new_empty(len(nodes), wide), torch.empty_like(nodes)
    signs = torch.empty(len(nodes), wide, dtype=torch.uint8)
    rows, biases = matrix.forward, (sum_bias.numpy(), product_bias.numpy())
    edges = (rows.indptr.numpy(), rows.column.numpy(), rows.value.numpy())
    known = _known(slope, p, key, out.numpy())
    inner, outer = _workspace(nodes, nodes.shape[1]), _workspace(nodes, wide)
    for start, stop in _blocks(len(nodes)):
        mixed, mapped = _part_of(inner, stop - start), _part_of(outer, stop - start)
        bounds = even_pieces(edges[0], start, stop)
        size = int(edges[0][stop] - edges[0][start] + stop - start) * nodes.shape[1]
        arrays = (nodes.numpy(), around.numpy(), *mixed.numpy())
        over_ranges(_gather, (*edges, *arrays, bounds), len(bounds) - 1, size)
        products.product(mixed, both, out=mapped)
        arrays = (*mapped.numpy(), out.numpy(), signs.numpy())
        over_ranges(_mix, (*arrays, *biases, start, *known), stop - start, out[start:stop].numel())
    return out if chosen is None else out.index_select(0, chosen), around, signs


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
    chosen: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Gradients of the nodes and of both weights and biases, in the order of ``bi_interaction``'s."""
    if chosen is not None:
        gradient = gradient.new_zeros(len(nodes), gradient.shape[1]).index_copy_(0, chosen, gradient)
    nodes = nodes.detach()
    both = torch.stack([w.detach() for w in weights])
    into_weights = torch.zeros_like(both)
    wide, parts = both.shape[1], -(-len(nodes) // _PART)
    biases = nodes.new_zeros(2, parts, wide)
    to_nodes, to_around = torch.empty_like(nodes), torch.empty_like(nodes)
    known = _known(slope, p, key, gradient.numpy())
    inner, outer = _workspace(nodes, nodes.shape[1]), _workspace(nodes, wide)
    states = (nodes.numpy(), around.numpy())
    for start, stop in _blocks(len(nodes)):
        mixed, mapped = _part_of(inner, stop - start), _part_of(outer, stop - start)
        arrays = (gradient.numpy(), signs.numpy(), *mapped.numpy(), *biases.numpy(), start, start // _PART, *known)
        over_ranges(_part, arrays, -(-(stop - start) // _PART), mapped.numel())
        over_ranges(_pair, (*states, *mixed.numpy(), start), stop - start, mixed.numel())
        # Both maps in one call: with a batch of two a thread takes one, where one product is divided among them.
        products.add_product_(into_weights, mapped.mT, mixed)
        products.product(mapped, both, out=mixed)
        arrays = (*states, *mixed.numpy(), to_nodes.numpy(), to_around.numpy(), start)
        over_ranges(_join, arrays, stop - start, mixed.numel())
    turned = matrix.transpose
    product(turned.indptr, turned.column, turned.value, to_around, out=to_nodes, onto=to_nodes)
    sum_bias, product_bias = biases.sum(1)
    return to_nodes, into_weights[0], sum_bias, into_weights[1], product_bias


def _workspace(like: Tensor, width: int) -> Tensor:
    """Room for two tables of a block."""
    return like.new_empty(2 * min(len(like), _ROWS), width)


def _part_of(workspace: Tensor, rows: int) -> Tensor:
    """[2, rows, width], contiguous."""
    return workspace[: 2 * rows].view(2, rows, workspace.shape[1])


def _blocks(count: int) -> Iterator[tuple[int, int]]:
    for start in range(0, count, _ROWS):
        yield start, min(start + _ROWS, count)


def _known(slope: float, p: float, key: Key, like: Any) -> tuple[Any, ...]:
    """Slope, and what a mask consists of; a threshold of 0 keeps all."""
    return like.dtype.type(slope), *numbers(key, *threshold_and_scale(p), like)


@_jit
def _gather(
    indptr: Any,
    column: Any,
    value: Any,
    nodes: Any,
    around: Any,
    sums: Any,
    products: Any,
    bounds: Any,
    first: int,
    last: int,
) -> None:
    width, start = nodes.shape[1], bounds[0]
    columns, values, source, to = address(column), address(value), address(nodes), address(around)
    for row in range(bounds[first], bounds[last]):
        weighted_rows(columns, values, indptr[row], indptr[row + 1], source, width, to, -1, to, row * width)
        target = around[row]
        own, plus, times = nodes[row], sums[row - start], products[row - start]
        for j in range(width):
            plus[j] = own[j] + target[j]
            times[j] = own[j] * target[j]


@_jit
def _mix(
    left: Any,
    right: Any,
    out: Any,
    signs: Any,
    sum_bias: Any,
    product_bias: Any,
    start: int,
    slope: Any,
    low: Any,
    high: Any,
    threshold: Any,
    scale: Any,
    zero: Any,
    first: int,
    last: int,
) -> None:
    width = out.shape[1]
    for row in range(first, last):
        a, b, target, kept = left[row], right[row], out[start + row], signs[start + row]
        place = (start + row) * width
        for j in range(width):
            x, y = a[j] + sum_bias[j], b[j] + product_bias[j]
            mixed = (x if x > zero else x * slope) + (y if y > zero else y * slope)
            target[j] = mixed * (scale if word(place + j, low, high) >= threshold else zero)
            kept[j] = np.uint8(x > zero) | (np.uint8(y > zero) << np.uint8(1))


@_jit
def _part(
    gradient: Any,
    signs: Any,
    left: Any,
    right: Any,
    sum_bias: Any,
    product_bias: Any,
    start: int,
    first_part: int,
    slope: Any,
    low: Any,
    high: Any,
    threshold: Any,
    scale: Any,
    zero: Any,
    first: int,
    last: int,
) -> None:
    width = gradient.shape[1]
    for part in range(first, last):
        of_sum, of_product = sum_bias[first_part + part], product_bias[first_part + part]
        for row in range(part * _PART, min((part + 1) * _PART, len(left))):
            given, kept, a, b = gradient[start + row], signs[start + row], left[row], right[row]
            place = (start + row) * width
            for j in range(width):
                g = given[j] * (scale if word(place + j, low, high) >= threshold else zero)
                x = g if kept[j] & np.uint8(1) else g * slope
                y = g if kept[j] & np.uint8(2) else g * slope
                a[j], b[j] = x, y
                of_sum[j] += x
                of_product[j] += y


@_jit
def _pair(nodes: Any, around: Any, sums: Any, products: Any, start: int, first: int, last: int) -> None:
    for row in range(first, last):
        own, others, plus, times = nodes[start + row], around[start + row], sums[row], products[row]
        for j in range(len(own)):
            plus[j] = own[j] + others[j]
            times[j] = own[j] * others[j]


@_jit
def _join(
    nodes: Any,
    around: Any,
    sums: Any,
    products: Any,
    to_nodes: Any,
    to_around: Any,
    start: int,
    first: int,
    last: int,
) -> None:
    for row in range(first, last):
        own, others, plus, times = nodes[start + row], around[start + row], sums[row], products[row]
        to_own, to_others = to_nodes[start + row], to_around[start + row]
        for j in range(len(own)):
            to_own[j] = plus[j] + times[j] * others[j]
            to_others[j] = plus[j] + times[j] * own[j]
