"""``combination`` for the CPU, compiled: some rows at a time through the whole layer, products included.

What is between the tables that are read and written stays in the first two caches.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphmill.kernels.products.cpu import SIX, whole_blocks
from graphmill.kernels.runtime.compiled_math import FAST
from graphmill.kernels.runtime.jit import jit
from graphmill.kernels.runtime.team import over_ranges
from graphmill.kernels.runtime.vector_math import where_positive
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

_jit = jit(nogil=True, fastmath=FAST, error_model="numpy")
_TOGETHER = 8 * SIX
"""Rows that go through the layer together."""
_PARTS = 16
"""Parts of the rows, at most, whose share of the weights' gradients is one sum: these do not depend on the number of
threads."""
_LEAST_PART = 4 * _TOGETHER


def forward(tables: Sequence[Tensor], weights: Sequence[Tensor], slope: float) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The result [n, k], σ(m) [n, w], x̂ [n, d], and uint8 [n, max(k, d)]: bit 0 the sign of x̂'s ReLU, bit 1 the result's."""
    messages, rows, identity = (t.detach() for t in tables)
    own_weight, own_bias, joint_weight, joint_bias = (w.detach() for w in weights)
    count, width = messages.shape
    maps = [_packed(w.T) for w in (own_weight, joint_weight[:, :width], joint_weight[:, width:])]
    biases = [_packed(b[None])[0] for b in (own_bias, joint_bias)]
    hidden, inner = torch.empty_like(messages), torch.empty_like(identity)
    out = messages.new_empty(count, len(joint_weight))
    signs = torch.zeros(count, max(out.shape[1], inner.shape[1]), dtype=torch.uint8)
    arrays = [t.numpy() for t in (messages, rows, identity, *maps, *biases, hidden, inner, out, signs)]
    steep = arrays[0].dtype.type(slope)
    over_ranges(_forward, (*arrays, steep), -(-count // _TOGETHER), hidden.numel())
    return out, hidden, inner, signs


def backward(
    gradient: Tensor, kept: Sequence[Tensor], slope: float, needed: Sequence[bool]
) -> tuple[Tensor | None, ...]:
    """Gradients of messages, rows and identity where ``needed``, then of both weights and biases.

    ``kept``: rows, σ(m), x̂, signs, and the weights of own and joint.
    """
    rows, hidden, inner, signs, own_weight, joint_weight = (t.detach() for t in kept)
    count, width = hidden.shape
    wide, middle = len(joint_weight), len(own_weight)
    second = joint_weight[:, width:]
    maps = [_packed(w) for w in (own_weight, joint_weight[:, :width], second)]
    size = max(-(-count // _PARTS), _LEAST_PART)
    parts = -(-count // size)
    # The rows past the last are what a block of six leaves over.
    into = [gradient.new_zeros(parts, len(m) + SIX, m.shape[1]) for m in maps]
    biases = [gradient.new_zeros(parts, n) for n in (middle, wide)]
    nothing = gradient.new_empty(0, 0)
    found = [
        torch.empty_like(t) if wanted else nothing for t, wanted in zip((hidden, rows, inner), needed, strict=True)
    ]
    arrays = [t.numpy() for t in (gradient, rows, hidden, inner, signs, *maps, *into, *biases, *found)]
    steep = arrays[0].dtype.type(slope)
    over_ranges(_backward, (*arrays, size, steep), parts, hidden.numel())
    own, *joint = (t.sum(0) for t in into)
    of_joint = torch.cat((joint[0][:wide, :width], joint[1][:wide, : second.shape[1]]), 1)
    to_messages, to_rows, to_identity = (t if wanted else None for t, wanted in zip(found, needed, strict=True))
    of_own = own[:middle, : rows.shape[1]]
    return to_messages, to_rows, to_identity, of_own, biases[0].sum(0), of_joint, biases[1].sum(0)


def _packed(matrix: Tensor) -> Tensor:
    """A copy with columns of zeros up to whole vectors."""
    out = matrix.new_zeros(len(matrix), padded(matrix.shape[1]))
    out[:, : matrix.shape[1]] = matrix
    return out


@_jit
def _copy(table: Any, at: int, width: int, rows: int, room: Any, pitch: int) -> None:
    """Rows of a table with zeros up to whole vectors."""
    for row in range(rows):
        for c in range(0, width, LANES):
            store(room, row * pitch + c, load_first(table, at + row * width + c, width - c))


@_jit
def _forward(arguments: Any, first: int, last: int) -> None:
    messages, rows, identity, own_map, first_map, second_map, own_bias, joint_bias, hidden, inner, out, signs, slope = (
        arguments
    )
    width, depth, middle, wide = messages.shape[1], rows.shape[1], inner.shape[1], out.shape[1]
    a, b, c, d = padded(width), padded(depth), padded(middle), padded(wide)
    kind = messages.dtype
    some_hidden, some_rows = np.empty((_TOGETHER, a), kind), np.empty((_TOGETHER, b), kind)
    some_inner, some_out = np.empty((_TOGETHER, c), kind), np.empty((_TOGETHER, d), kind)
    h, r, x, y = address(some_hidden), address(some_rows), address(some_inner), address(some_out)
    source, table, added = address(messages), address(rows), address(identity)
    own, joint, other = address(own_map), address(first_map), address(second_map)
    shift, last_shift, kept, marks = address(own_bias), address(joint_bias), address(signs), signs.shape[1]
    to_hidden, to_inner, to_out = address(hidden), address(inner), address(out)
    zero, concatenate, count = like(slope, 0), len(second_map) > 0, len(messages)
    for start in range(first * _TOGETHER, min(last * _TOGETHER, count), _TOGETHER):
        size = min(_TOGETHER, count - start)
        _copy(table, start * depth, depth, size, r, b)
        whole_blocks((r, 0, b, 1), (own, 0, c, depth), (x, 0, c, False), size, middle)
        for row in range(size):
            at, place, mark = row * c, (start + row) * middle, (start + row) * marks
            for j in range(middle):
                value = x[at + j] + shift[j]
                kept[mark + j] = np.uint8(value > zero)
                x[at + j] = (value if value > zero else value * slope) + added[place + j]
                to_inner[place + j] = x[at + j]
            at, place = row * a, (start + row) * width
            for j in range(0, width, LANES):
                given = load_first(source, place + j, width - j)
                given = where_positive(given, given, given * spread(slope))
                store(h, at + j, given)
                store_first(to_hidden, place + j, given, width - j)
        whole_blocks((h, 0, a, 1), (joint, 0, d, width), (y, 0, d, False), size, wide)
        if concatenate:
            whole_blocks((x, 0, c, 1), (other, 0, d, middle), (y, 0, d, True), size, wide)
        for row in range(size):
            at, place, mark, own_at = row * d, (start + row) * wide, (start + row) * marks, row * c
            if not concatenate:
                for j in range(wide):
                    y[at + j] += x[own_at + j]
            for j in range(wide):
                value = y[at + j] + last_shift[j]
                kept[mark + j] |= np.uint8(value > zero) << np.uint8(1)
                to_out[place + j] = value if value > zero else value * slope
    hold(some_hidden)
    hold(some_rows)
    hold(some_inner)
    hold(some_out)


@_jit
def _backward(arguments: Any, first: int, last: int) -> None:
    (
        gradient, rows, hidden, inner, signs, own_map, first_map, second_map, into_own, into_first, into_second, own_biases,
        joint_biases, to_messages, to_rows, to_identity, part_size, slope
    ) = arguments  # fmt: skip
    width, depth, middle, wide = hidden.shape[1], rows.shape[1], inner.shape[1], gradient.shape[1]
    a, b, c, d = padded(width), padded(depth), padded(middle), padded(wide)
    kind = gradient.dtype
    # Blocks of six columns of what is turned read a little past its last row.
    some_hidden, some_rows, some_inner = (
        np.empty((_TOGETHER, a), kind),
        np.empty((_TOGETHER, b), kind),
        np.empty((_TOGETHER, c), kind),
    )
    outer, between = np.zeros((_TOGETHER + 1, d), kind), np.zeros((_TOGETHER + 1, c), kind)
    h, r, x, g, t = address(some_hidden), address(some_rows), address(some_inner), address(outer), address(between)
    given, table, known, values = address(gradient), address(rows), address(hidden), address(inner)
    own, joint, other = address(own_map), address(first_map), address(second_map)
    kept, marks = address(signs), signs.shape[1]
    of_own, of_first, of_second = address(into_own), address(into_first), address(into_second)
    own_bias, joint_bias = address(own_biases), address(joint_biases)
    out_messages, out_rows, out_identity = address(to_messages), address(to_rows), address(to_identity)
    wants_messages, wants_rows, wants_identity = to_messages.size > 0, to_rows.size > 0, to_identity.size > 0
    concatenate, count, zero = second_map.shape[1] > 0, len(hidden), like(slope, 0)
    for part in range(first, last):
        at_own, at_first = part * into_own.shape[1] * b, part * into_first.shape[1] * a
        at_second, own_sum, joint_sum = part * into_second.shape[1] * c, part * middle, part * wide
        for start in range(part * part_size, min((part + 1) * part_size, count), _TOGETHER):
            size = min(_TOGETHER, (part + 1) * part_size - start, count - start)
            for row in range(size):
                at, place, mark = row * d, (start + row) * wide, (start + row) * marks
                for j in range(wide):
                    value = given[place + j]
                    value = value if kept[mark + j] & np.uint8(2) else value * slope
                    g[at + j] = value
                    joint_bias[joint_sum + j] += value
            _copy(known, start * width, width, size, h, a)
            whole_blocks((g, 0, 1, d), (h, 0, a, size), (of_first, at_first, a, True), wide, width)
            if wants_messages:
                whole_blocks((g, 0, d, 1), (joint, 0, a, wide), (h, 0, a, False), size, width)
                for row in range(size):
                    at, place = row * a, (start + row) * width
                    for j in range(0, width, LANES):
                        value, sign = load(h, at + j), load_first(known, place + j, width - j)
                        value = where_positive(sign, value, value * spread(slope))
                        store_first(out_messages, place + j, value, width - j)
            if concatenate:
                _copy(values, start * middle, middle, size, x, c)
                whole_blocks((g, 0, 1, d), (x, 0, c, size), (of_second, at_second, c, True), wide, middle)
                whole_blocks((g, 0, d, 1), (other, 0, c, wide), (t, 0, c, False), size, middle)
            else:
                for row in range(size):
                    for j in range(middle):
                        t[row * c + j] = g[row * d + j]
            for row in range(size):
                at, place, mark = row * c, (start + row) * middle, (start + row) * marks
                for j in range(middle):
                    value = t[at + j]
                    if wants_identity:
                        out_identity[place + j] = value
                    value = value if kept[mark + j] & np.uint8(1) else value * slope
                    t[at + j] = value
                    own_bias[own_sum + j] += value
                for j in range(middle, c):
                    t[at + j] = zero
            _copy(table, start * depth, depth, size, r, b)
            whole_blocks((t, 0, 1, c), (r, 0, b, size), (of_own, at_own, b, True), middle, depth)
            if wants_rows:
                whole_blocks((t, 0, c, 1), (own, 0, b, middle), (r, 0, b, False), size, depth)
                for row in range(size):
                    for j in range(0, depth, LANES):
                        store_first(out_rows, (start + row) * depth + j, load(r, row * b + j), depth - j)
    hold(some_hidden)
    hold(some_rows)
    hold(some_inner)
    hold(outer)
    hold(between)
