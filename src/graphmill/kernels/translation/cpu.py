"""KGAT's scores of edges for the CPU, compiled: processes a few dozen heads at a time, matrix products included.

The tails of some relations are first projected into one table. Then a block of heads is projected, translated and
followed along its edges, and only the scores are written. With a separate call for each operation, every projected row
would go through memory several times. The module also has the softmax over a node's edges, row by row.
"""

from __future__ import annotations

from collections import namedtuple
from typing import Any

import numpy as np
from torch import Tensor

from graphmill.kernels.bi_interaction.sparse_rows import even_pieces
from graphmill.kernels.hgt.cpu.row_parts import ENOUGH, dot, dots_of, gather, softmax
from graphmill.kernels.products.cpu import SIX, whole_blocks
from graphmill.kernels.runtime.jit import jit_fast
from graphmill.kernels.runtime.team import over_ranges
from graphmill.kernels.runtime.vector_math import exponential, larger
from graphmill.kernels.runtime.vectors import (
    LANES,
    address,
    fetch,
    hold,
    like,
    load,
    load_first,
    numbers_at,
    padded,
    spread,
    store,
    store_first,
    whole_lines,
)

_TOGETHER = 8 * SIX
"""Rows that are projected together."""
_AHEAD = 8
"""Number of edges by which tail rows are prefetched, because their order is random."""
_MOST = 80
"""From here on 1 − 2 / (e^x + 1) is 1."""
_EDGES_OF_A_ROW = 8
"""About as many edges take as long as the projection of one head."""


Ends = tuple[Tensor, np.ndarray, Tensor, np.ndarray, Tensor, Tensor, Tensor]
"""Heads, tails and edges of :func:`score_edges`."""
_Score = namedtuple(
    "_Score", "nodes pitch matrices depth width translations heads bounds indptr tail edges projected logits pieces"
)


def score_edges(logits: Tensor, nodes: Tensor, matrices: Tensor, translations: Tensor, ends: Ends) -> None:
    """``logits[edges[e]]`` = ⟨W_r t, tanh(W_r h + e_r)⟩ for edges of some relations, sorted by head. All fp32.

    ``nodes`` [N, d], ``matrices`` [G, d, k], ``translations`` [G, k]. ``heads`` int64 [m]: head nodes, with those of
    relation r from ``head_bounds[r]`` on; ``tails`` [n] likewise. ``indptr`` int64 [m + 1]: bounds of each head's
    edges. ``tail`` int64 [E]: an edge's index into ``tails``. ``edges`` int64 [E]: its index into ``logits``.
    """
    heads, head_bounds, tails, tail_bounds, indptr, tail, edges = ends
    width = matrices.shape[2]
    projected = nodes.new_empty(len(tails), padded(width))
    tables = (nodes.data_ptr(), nodes.stride(0), matrices.data_ptr(), matrices.shape[1], width)
    arguments = (*tables, tails.numpy(), tail_bounds, projected.data_ptr())
    over_ranges(_project, arguments, len(tails), len(tails) * width * matrices.shape[1] // LANES)
    starts = indptr.numpy()
    pieces = even_pieces(starts, _EDGES_OF_A_ROW)
    given = (*tables, translations.data_ptr(), heads.numpy(), head_bounds, starts, tail.numpy(), edges.numpy())
    work = len(heads) * width * matrices.shape[1] // LANES + len(tail) * width
    over_ranges(_score, _Score(*given, projected.data_ptr(), logits.data_ptr(), pieces), len(pieces) - 1, work)
    del projected


def softmax_of_rows(logits: Tensor, indptr: Tensor) -> Tensor:
    """e^a / Σ over each row's edges, [E]; ``logits`` fp32 [E], ``indptr`` int64 [rows + 1]."""
    # Sixteen numbers are read at once, even from a shorter row, so add padding.
    out = logits.new_empty(len(logits) + LANES)
    out[: len(logits)] = logits
    starts = indptr.numpy()
    pieces = even_pieces(starts, 1)
    over_ranges(_softmax, (out.numpy(), starts, pieces), len(pieces) - 1, LANES * len(out))
    return out[: len(logits)]


@jit_fast
def _padded_matrix(matrices: Any, group: int, depth: int, width: int, room: Any) -> None:
    """Copy a group's matrix with rows zero-padded to whole vectors."""
    line, start = padded(width), group * depth * width
    for t in range(depth):
        for c in range(0, width, LANES):
            store(room, t * line + c, load_first(matrices, start + t * width + c, width - c))


@jit_fast
def _project(
    nodes: int, pitch: int, matrices: int, depth: int, width: int, tails: Any, bounds: Any, out: int, first: int,
    last: int,
) -> None:  # fmt: skip
    if first >= last:
        return
    table, maps, to = numbers_at(nodes), numbers_at(matrices), numbers_at(out)
    line, deep = padded(width), padded(depth)
    map_room, rooms = (
        np.empty(depth * line + LANES, np.float32),
        np.empty((_TOGETHER + SIX) * (deep + line) + LANES, np.float32),
    )
    one, given = whole_lines(map_room), whole_lines(rooms)
    found = (_TOGETHER + SIX) * deep
    group, start, packed = 0, first, -1
    while start < last:
        while bounds[group + 1] <= start:
            group += 1
        if packed != group:
            _padded_matrix(maps, group, depth, width, one)
            packed = group
        size = min(min(_TOGETHER, last - start), bounds[group + 1] - start)
        gather((table, 0, pitch), tails, start, size, depth, (given, 0, deep))
        whole_blocks((given, 0, deep, 1), (one, 0, line, depth), (given, found, line, False), size, width)
        # Not written to ``out`` directly: the last block has six rows, and the next rows may belong to another thread.
        for c in range(0, size * line, LANES):
            store(to, start * line + c, load(given, found + c))
        start += size
    hold(map_room)
    hold(rooms)


@jit_fast
def _score(call: Any, first: int, last: int) -> None:
    bounds, indptr, edges = call.bounds, call.indptr, call.edges
    if first >= last:
        return
    table, maps, moves = numbers_at(call.nodes), numbers_at(call.matrices), numbers_at(call.translations)
    rows, out, index = numbers_at(call.projected), numbers_at(call.logits), address(call.tail)
    line, deep, count = padded(call.width), padded(call.depth), len(call.tail)
    map_room, rooms = (
        np.empty(call.depth * line + line + LANES, np.float32),
        np.empty((_TOGETHER + SIX) * (deep + line) + 2 * LANES, np.float32),
    )
    one, given = whole_lines(map_room), whole_lines(rooms)
    move, found, several = call.depth * line, (_TOGETHER + SIX) * deep, (_TOGETHER + SIX) * (deep + line)
    begin, end = call.pieces[first], call.pieces[last]
    if begin >= end:
        return
    group, start, packed = 0, begin, -1
    while start < end:
        while bounds[group + 1] <= start:
            group += 1
        if packed != group:
            _padded_matrix(maps, group, call.depth, call.width, one)
            for c in range(0, call.width, LANES):
                store(one, move + c, load_first(moves, group * call.width + c, call.width - c))
            packed = group
        size = min(min(_TOGETHER, end - start), bounds[group + 1] - start)
        gather((table, 0, call.pitch), call.heads, start, size, call.depth, (given, 0, deep))
        whole_blocks((given, 0, deep, 1), (one, 0, line, call.depth), (given, found, line, False), size, call.width)
        _tanh_of(given, found, one, move, size, line)
        for i in range(size):
            row, e, stop = found + i * line, indptr[start + i], indptr[start + i + 1]
            while stop - e >= ENOUGH:
                many = min(LANES, stop - e)
                for other in range(e + LANES, min(e + 2 * LANES, count)):
                    fetch(rows, index[other] * line, call.width)
                store(given, several, dots_of(given, row, (index, e, stop - 1), (rows, 0, line), line))
                for other in range(many):
                    out[edges[e + other]] = given[several + other]
                e += many
            while e < stop:
                if e + _AHEAD < count:
                    fetch(rows, index[e + _AHEAD] * line, call.width)
                out[edges[e]] = dot(given, row, rows, index[e] * line, line)
                e += 1
        start += size
    hold(map_room)
    hold(rooms)


@jit_fast
def _tanh_of(room: Any, at: int, beside: Any, move: int, rows: int, line: int) -> None:
    """Replace rows by tanh(row + translation), as 1 − 2 / (e^2x + 1), to about 1e-7 at any magnitude; NaN stays NaN."""
    one, two = spread(like(room[at], 1)), spread(like(room[at], 2))
    zero, most = spread(like(room[at], 0)), spread(like(room[at], -_MOST))
    for c in range(0, line, LANES):
        moved = load(beside, move + c)
        for r in range(rows):
            x = load(room, at + r * line + c) + moved
            power = exponential(zero - larger(most, zero - two * x))
            store(room, at + r * line + c, one - two / (power + one))


@jit_fast
def _softmax(out: Any, indptr: Any, pieces: Any, first: int, last: int) -> None:
    numbers = address(out)
    lowest, zero = like(out[0], -np.inf), like(out[0], 0)
    for row in range(pieces[first], pieces[last]):
        begin, stop = indptr[row], indptr[row + 1]
        if begin == stop:
            continue
        total, _ = softmax(numbers, begin, stop, lowest, zero)
        share = spread(like(total, 1) / total)
        for e in range(begin, stop, LANES):
            store_first(numbers, e, share * load_first(numbers, e, stop - e), stop - e)
