"""HGT's attention of one relation for some heads, compiled: products, edges and sums in one pass.

A block of targets is processed at a time. Their queries are gathered and multiplied, their edges are followed, and the
sums are multiplied and merged into the softmax over all relations. No intermediate result goes to memory. With a
separate call per operation, each relation's rows would be gathered, multiplied and written back through memory. Most
relations of a sparse graph have only about one edge for each of these rows.

Sources are read in random order. If the matrices are applied to the sources, or if many edges share a source, they are
first packed into a buffer, which is reused for each head. Otherwise the edges read, and add to, the rows of all nodes.

``passes`` runs it for all relations and prepares the arguments.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from graphmill.kernels.hgt.cpu.relation import (
    PLACES,
    ends_of,
    fetch_source,
    fetch_sources,
    side_by_side,
    width_of,
)
from graphmill.kernels.hgt.cpu.row_parts import (
    AHEAD,
    ENOUGH,
    TOGETHER,
    dot,
    dots_of,
    end_of,
    gather,
    matrix,
    onto_target,
    softmax,
    times,
)
from graphmill.kernels.runtime.compiled_math import exp
from graphmill.kernels.runtime.jit import jit_fast
from graphmill.kernels.runtime.vectors import (
    LANES,
    behind,
    fetch,
    like,
    load,
    load_first,
    numbers_as,
    padded,
    spread,
    store,
    store_first,
)


class Targets(NamedTuple):
    """Addresses and row strides of the targets' queries and results.

    Before the first relation into a target, its ``totals`` must be 0; its ``sums`` may be uninitialised.
    """

    q: Any
    q_pitch: Any
    sums: Any
    sums_pitch: Any
    totals: Any
    total_pitch: Any
    highest: Any


@jit_fast
def forward(relation, kinds, sources, targets, matrices, scratch, lanes, heads):  # type: ignore[no-untyped-def]
    """Add one relation's messages for heads ``heads[0]:heads[1]`` to its ``targets``.

    ``matrices``: addresses of W^K, W^V and the prior. ``scratch``: addresses of scratch memory (``scratch_sizes``),
    whose content is not used before or after the call.
    """
    queries, prior = numbers_as(kinds.rows, targets.q), numbers_as(kinds.own, matrices[2])
    w_k, w_v = numbers_as(kinds.own, matrices[0]), numbers_as(kinds.own, matrices[1])
    out = numbers_as(kinds.own, targets.sums)
    width = width_of(lanes, relation.width)
    line, square, zero = padded(width), width * width, like(prior[0], 0)
    lowest, root = like(prior[0], -np.inf), like(prior[0], math.sqrt(width))
    indptr, nodes = relation.indptr, relation.target_nodes
    maps, given = numbers_as(kinds.own, scratch[0]), numbers_as(kinds.own, scratch[2])
    totals, logits = numbers_as(kinds.own, scratch[3]), numbers_as(kinds.own, scratch[4])
    tops, places = behind(totals, relation.together), numbers_as(PLACES, scratch[5])
    room = max(relation.together, TOGETHER) * line
    turned, around, result = room, 2 * room, 3 * room
    query, found = (turned, result) if relation.on_target else (0, around)
    for h in range(heads[0], heads[1]):
        column = h * width
        matrix(w_k, h * square, width, relation.on_target, maps)
        matrix(w_v, h * square, width, False, behind(maps, width * line))
        if relation.compact:
            side_by_side(relation, kinds, sources, maps, given, lanes, column)
        ends = ends_of(kinds.near, sources, column, width, relation.compact)
        for start in range(0, len(nodes), relation.together):
            size = min(relation.together, len(nodes) - start)
            gather((queries, column, targets.q_pitch), nodes, start, size, width, (given, 0, line))
            if relation.on_target:
                times(given, 0, maps, 0, given, turned, size, width, line)
            for i in range(size):
                fetch(out, nodes[start + i] * targets.sums_pitch + column, width)
                places[i] = indptr[start + i]
            _logits(relation, ends, behind(given, query), (start, size), logits, places, prior[h] / root, lanes)
            origin = indptr[start]
            for i in range(size):
                begin, stop = indptr[start + i] - origin, indptr[start + i + 1] - origin
                totals[i], tops[i] = softmax(logits, begin, stop, lowest, zero)
                places[i] = indptr[start + i]
            for c in range(0, size * line, LANES):
                store(given, around + c, spread(zero))
            _sums(relation, ends, behind(given, around), (start, size), logits, places, totals, lanes)
            if relation.on_target:
                times(given, around, maps, width * line, given, result, size, width, line)
            _merge(targets, kinds, (nodes, start, size), behind(given, found), totals, tops, width, h)


@jit_fast
def _logits(relation, ends, queries, span, logits, places, f, lanes):  # type: ignore[no-untyped-def]
    """The logits of some targets' edges, tile by tile of the sources."""
    width = width_of(lanes, relation.width)
    (start, size), line, indptr, index = span, padded(width), relation.indptr, relation.index
    count, tile, origin = len(relation.source_nodes), relation.tile, indptr[start]
    near, masked, lowest = tile >= count, len(relation.kept) > 0, like(f, -np.inf)
    keys, to_k, key_pitch = ends.keys
    for until in range(tile, count + tile, tile):
        for i in range(size):
            row, begin, end = i * line, places[i], indptr[start + i + 1]
            stop = end if near else end_of(index, begin, end, until)
            places[i] = stop
            next_edge = begin
            while stop - next_edge >= ENOUGH:
                e, many = next_edge, min(LANES, stop - next_edge)
                if near:
                    fetch_sources(ends, index, e, relation.edges, width)
                found = dots_of(queries, row, (index, e, stop - 1), ends.keys, width)
                store_first(logits, e - origin, spread(f) * found, many)
                if masked:
                    for other in range(e, e + many):
                        if relation.kept[other] == 0:
                            logits[other - origin] = lowest
                next_edge += many
            for e in range(next_edge, stop):
                if near and e + AHEAD < relation.edges:
                    fetch_source(ends, np.int64(index[e + AHEAD]), width)
                s = f * dot(queries, row, keys, to_k + np.int64(index[e]) * key_pitch, width)
                if masked and relation.kept[e] == 0:
                    s = lowest
                logits[e - origin] = s


@jit_fast
def _sums(relation, ends, rows, span, shares, places, totals, lanes):  # type: ignore[no-untyped-def]
    """Sum the values of some targets' edges, weighted by the softmax, tile by tile of the sources."""
    width = width_of(lanes, relation.width)
    (start, size), line, indptr = span, padded(width), relation.indptr
    count, tile, origin = len(relation.source_nodes), relation.tile, indptr[start]
    near = tile >= count
    for until in range(tile, count + tile, tile):
        for i in range(size):
            begin, end = places[i], indptr[start + i + 1]
            stop = end if near else end_of(relation.index, begin, end, until)
            places[i] = stop
            if totals[i] > 0:
                onto_target(rows, i * line, (shares, origin), (relation.index, begin, stop), ends.values, width)


@jit_fast
def _merge(targets, kinds, span, rows, totals, tops, width, h):  # type: ignore[no-untyped-def]
    """Merge the sums of some targets into the softmax over all relations, with both rescaled to the higher maximum."""
    (nodes, start, size), line, column = span, padded(width), h * width
    out, all_totals = numbers_as(kinds.own, targets.sums), numbers_as(kinds.own, targets.totals)
    highest = numbers_as(kinds.own, targets.highest)
    for i in range(size):
        if totals[i] == 0:
            continue
        own, to = nodes[start + i] * targets.total_pitch + h, nodes[start + i] * targets.sums_pitch + column
        if all_totals[own] == 0:
            # The first relation into this target: nothing has been written yet.
            highest[own], all_totals[own] = tops[i], totals[i]
            for c in range(0, width, LANES):
                store_first(out, to + c, load(rows, i * line + c), width - c)
            continue
        top = max(highest[own], tops[i])
        old_scale, new_scale = exp(highest[own] - top), exp(tops[i] - top)
        highest[own] = top
        all_totals[own] = all_totals[own] * old_scale + totals[i] * new_scale
        for c in range(0, width, LANES):
            new = spread(new_scale) * load(rows, i * line + c)
            store_first(out, to + c, spread(old_scale) * load_first(out, to + c, width - c) + new, width - c)
