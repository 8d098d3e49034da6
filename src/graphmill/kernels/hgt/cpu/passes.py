"""HGT's attention over all relations in one compiled call, on CPUs with the needed registers (``processor.own_blocks``).

``forward`` and ``backward`` process one relation. Here every thread takes some heads through all relations. So no two
threads write to one place, the order of additions does not depend on the number of threads, and no thread waits for
another between relations, each of which takes at most about a millisecond in a sparse graph.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Sequence

import numba
import numpy as np
import torch
from torch import Tensor

from graphmill.kernels.hgt import segments
from graphmill.kernels.hgt.cpu.backward import Slopes, backward
from graphmill.kernels.hgt.cpu.forward import Targets, forward
from graphmill.kernels.hgt.cpu.relation import Kinds, Relation, Sources
from graphmill.kernels.hgt.cpu.relation_table import columns_of, maps_of, masks_of, relation_table_of, workspace
from graphmill.kernels.hgt.plan import MessageGraph
from graphmill.kernels.hgt.relations import Rows, TypeRows, Weights
from graphmill.kernels.runtime.jit import jit_fast
from graphmill.kernels.runtime.team import over_ranges
from graphmill.kernels.runtime.vector_math import total
from graphmill.kernels.runtime.vectors import LANES, like, load_first, numbers_as, spread, store_first

_LANES = {32: (0, 0), 64: (0, 0, 0, 0)}
"""Head widths that are compile-time constants (``relation.width_of``). For others, loops have remainders."""
_Forward = namedtuple("_Forward", "table places masks kind own tables maps room width targets lanes")
_Backward = namedtuple("_Backward", "table places masks kind own maps room width lanes")
_HeadProducts = namedtuple("_HeadProducts", "kind own left left_pitch right right_pitch out heads width")

Softmax = tuple[Tensor, Tensor, Tensor]
"""Σ α·v [targets, h·D]; the softmax's total Σ exp(a − highest) and highest = max a, both [targets, h] in one tensor."""


def all_forward(
    graph: MessageGraph, chosen: tuple[int, ...], rows: tuple[Tensor, TypeRows, TypeRows], matrices: Weights,
    kept: Sequence[Tensor | None], found: Softmax,
) -> None:  # fmt: skip
    """Fill ``found`` with messages of the ``chosen`` relations into one type. Before, total is 0 and highest is −∞.

    ``rows``: that type's q [targets, h·D], and per type k and v [sources, h·D]; they may be bfloat16 while the others
    are fp32. ``matrices`` are contiguous within each relation. ``kept``: for each chosen relation bool [E], False for an
    edge without a message.
    """
    queries, keys, values = rows
    heads, width = matrices[0].shape[1:3]
    table = relation_table_of(graph, chosen, 2, matrices[0])
    places = np.array([columns_of(k) + columns_of(v) for k, v in zip(keys, values, strict=True)], np.int64)
    sums, totals, highest = found
    tables = Targets(*columns_of(queries), *columns_of(sums), *columns_of(totals), highest.data_ptr())
    kinds = EMPTY[queries.dtype], EMPTY[matrices[0].dtype]
    room, known = workspace(table, 2, heads), (width, len(queries), _LANES.get(width, (0,)))
    call = _Forward(table.numbers, places, masks_of(kept), *kinds, tables, maps_of(matrices), room, *known)
    over_ranges(_all_forward, call, room[2], table.nodes * heads * width)


def all_backward(
    graph: MessageGraph, chosen: tuple[int, ...], rows: Rows, matrices: Weights, kept: Sequence[Tensor | None],
    softmax: tuple[TypeRows, TypeRows, TypeRows], d_rows: Rows, d_matrices: Weights,
) -> None:  # fmt: skip
    """Add the gradients of the ``chosen`` relations to ``d_rows``, and fill their ``d_matrices``.

    ``rows`` and ``d_rows``: q, k and v per type. ``softmax``, per type: the gradient of the attention's result
    [targets, h·D], in the rows' dtype; the log of the softmax's total over all relations and Σ α·dα [targets, h]. It
    has no logits: they are recomputed.
    """
    heads, width = matrices[0].shape[1:3]
    of_rows = next(d for d in softmax[0] if d is not None)
    table = relation_table_of(graph, chosen, 4, matrices[0])
    d_out, log_total, delta = softmax
    every = (*rows, d_out, *d_rows, log_total, delta)
    places = np.array([[n for t in of_type for n in columns_of(t)] for of_type in zip(*every, strict=True)], np.int64)
    maps, kinds = (*maps_of(matrices), *maps_of(d_matrices)), (EMPTY[of_rows.dtype], EMPTY[matrices[0].dtype])
    room = workspace(table, 4, heads)
    call = _Backward(table.numbers, places, masks_of(kept), *kinds, maps, room, width, _LANES.get(width, (0,)))
    over_ranges(_all_backward, call, room[2], table.nodes * heads * width)


def head_products(left: Tensor, right: Tensor, heads: int) -> Tensor:
    """See :func:`graphmill.kernels.hgt.segments.head_products`; rows must be contiguous."""
    if left.dtype != right.dtype or left.dtype not in EMPTY:
        return segments.head_products(left, right, heads)
    kind = torch.float32 if left.dtype == torch.bfloat16 else left.dtype
    out = left.new_empty(len(left), heads, dtype=kind)
    tables = (left.data_ptr(), left.stride(0), right.data_ptr(), right.stride(0), out.data_ptr())
    call = _HeadProducts(EMPTY[left.dtype], EMPTY[kind], *tables, heads, left.shape[1] // heads)
    over_ranges(_head_products, call, len(left), left.numel())
    return out


EMPTY: dict[torch.dtype, np.ndarray] = {
    torch.float32: np.empty(0, np.float32),
    torch.float64: np.empty(0, np.float64),
    torch.bfloat16: np.empty(0, np.uint16),
}
"""An empty array of each dtype, which tells compiled code the dtype at an address."""
_BYTES, _SHORT, _LONG = (np.empty(0, kind) for kind in (np.uint8, np.int32, np.int64))


@jit_fast
def _relation(row, mask, width):  # type: ignore[no-untyped-def]
    """A relation from its row of the table and the address of its edges' mask, 0 if there is none."""
    edges, sources, targets = row[5], row[6], row[7]
    return Relation(
        numbers_as(_SHORT, row[1]),
        numba.carray(numbers_as(_LONG, row[2]), targets + 1),
        numba.carray(numbers_as(_LONG, row[3]), sources),
        numba.carray(numbers_as(_LONG, row[4]), targets),
        numba.carray(numbers_as(_BYTES, mask), edges if mask != 0 else 0),
        edges,
        row[8],
        row[9],
        width,
        row[10] != 0,
        row[11] != 0,
    )


@jit_fast
def _scratch_of(room, part):  # type: ignore[no-untyped-def]
    """Addresses of a part's scratch buffers."""
    start = room[4] + part * room[5]
    return start + room[6], start + room[7], start + room[8], start + room[9], start + room[10], start + room[11]


@jit_fast
def _heads_of(part, room):  # type: ignore[no-untyped-def]
    """The first head of a part of the work, and one past its last."""
    return room[3] * part // room[2], room[3] * (part + 1) // room[2]


@jit_fast
def _matrices_at(maps, number):  # type: ignore[no-untyped-def]
    """Addresses of a relation's W^K, W^V and prior, or of their gradients."""
    return maps[0] + number * maps[1], maps[2] + number * maps[3], maps[4] + number * maps[5]


@jit_fast
def _divide(own_kind, tables, targets, width, heads):  # type: ignore[no-untyped-def]
    """Divide each target's sums by its total; the result is 0 for a target without messages."""
    sums, totals = numbers_as(own_kind, tables.sums), numbers_as(own_kind, tables.totals)
    for i in range(targets):
        for h in range(heads[0], heads[1]):
            found, at = totals[i * tables.total_pitch + h], i * tables.sums_pitch + h * width
            if found == 0:
                for c in range(width):
                    sums[at + c] = 0
            else:
                share = spread(like(found, 1) / found)
                for c in range(0, width, LANES):
                    store_first(sums, at + c, share * load_first(sums, at + c, width - c), width - c)


@jit_fast
def _all_forward(call, first, last):  # type: ignore[no-untyped-def]
    table, places, masks, kind, own = call.table, call.places, call.masks, call.kind, call.own
    tables, maps, room, width, lanes = call.tables, call.maps, call.room, call.width, call.lanes
    for part in range(first, last):
        heads, scratch = _heads_of(part, room), _scratch_of(room, part)
        for j in range(len(table)):
            row, there = table[j], places[table[j][12]]
            relation = _relation(row, masks[j], width)
            near = room[0] + 2 * part * room[1]
            sources = Sources(there[0], there[1], there[2], there[3], near, near + room[1])
            matrices = _matrices_at(maps, row[0])
            if relation.compact:
                forward(relation, Kinds(kind, own, own), sources, tables, matrices, scratch, lanes, heads)
            else:
                forward(relation, Kinds(kind, own, kind), sources, tables, matrices, scratch, lanes, heads)
        _divide(own, tables, call.targets, width, heads)


@jit_fast
def _all_backward(call, first, last):  # type: ignore[no-untyped-def]
    table, places, masks, kind, own = call.table, call.places, call.masks, call.kind, call.own
    maps, room, width, lanes = call.maps, call.room, call.width, call.lanes
    for part in range(first, last):
        heads, scratch = _heads_of(part, room), _scratch_of(room, part)
        for j in range(len(table)):
            row, at, there = table[j], places[table[j][13]], places[table[j][12]]
            relation = _relation(row, masks[j], width)
            near, each, r = room[0] + 4 * part * room[1], room[1], row[0]
            sources = Sources(there[2], there[3], there[4], there[5], near, near + each)
            into = Sources(there[10], there[11], there[12], there[13], near + 2 * each, near + 3 * each)
            slopes = Slopes(at[0], at[1], at[8], at[9], at[6], at[7], at[14], at[15], at[16], at[17], into)
            matrices = (_matrices_at(maps[:6], r), _matrices_at(maps[6:], r))
            if relation.compact:
                backward(relation, Kinds(kind, own, own), sources, slopes, matrices, scratch, lanes, heads)
            else:
                backward(relation, Kinds(kind, own, kind), sources, slopes, matrices, scratch, lanes, heads)


@jit_fast
def _head_products(call, first, last):  # type: ignore[no-untyped-def]
    heads, width = call.heads, call.width
    x, y, found = numbers_as(call.kind, call.left), numbers_as(call.kind, call.right), numbers_as(call.own, call.out)
    for i in range(first, last):
        for h in range(heads):
            to_x, to_y = i * call.left_pitch + h * width, i * call.right_pitch + h * width
            sums = load_first(x, to_x, width) * load_first(y, to_y, width)
            for c in range(LANES, width, LANES):
                sums += load_first(x, to_x + c, width - c) * load_first(y, to_y + c, width - c)
            found[i * heads + h] = total(sums)
