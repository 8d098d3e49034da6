"""HGT's attention of one relation for some heads, compiled: products, edges and sums in one pass.

Some targets at a time go through it: their queries are gathered and multiplied, their edges followed, and what is found is
multiplied again and merged into the softmax over all relations, before the next ones come. Nothing of them is written in
between. In calls of its own for each operation (``hgt.relations``) every relation's rows were gathered, multiplied and put
back through memory, and most relations of a sparse graph have about one edge for each of those rows.

Sources are met at random. Where the matrices are applied to them, or many edges share one, they are put side by side first,
in a room that one head after the other has; elsewhere the edges read, and add to, the rows of all nodes.

``hgt.cpu.passes`` takes all relations through it, and says what is handed over.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from graphmill.kernels.hgt.cpu.row_parts import (
    ENOUGH,
    TOGETHER,
    add_gradient,
    dot,
    dots_of,
    end_of,
    fetch,
    gather,
    logit_slopes,
    matrix,
    most_edges,
    onto_source,
    onto_target,
    scatter,
    softmax,
    times,
    transformed,
)
from graphmill.kernels.products.cpu import SIX
from graphmill.kernels.runtime.compiled_math import FAST, exp
from graphmill.kernels.runtime.jit import jit
from graphmill.kernels.runtime.vectors import (
    LANES,
    LINE,
    address,
    behind,
    like,
    load,
    load_first,
    numbers_as,
    padded,
    spread,
    store,
    store_first,
)

_jit = jit(nogil=True, fastmath=FAST, error_model="numpy")
_AHEAD = 8
"""How many edges ahead the rows of their sources are fetched: they are met at random."""
PLACES = np.empty(0, np.int64)


def scratch_sizes(width: int, together: int, edges: tuple[int, int], size: int) -> list[int]:
    """Bytes of what a relation's pass works in, in the order of ``scratch``: matrices, their gradients, rows of ``together``
    targets, two numbers of each, two of each edge, and where each target's edges go on.

    ``edges``: those of so many targets in a row, at most, and of one; ``size``: bytes of a number.
    """
    line = padded(width)
    # Of the rows one more: what is turned in a product is read, and written, a little past its last row.
    numbers = [
        3 * width * line,
        2 * (width + SIX) * line,
        7 * (max(together, TOGETHER) + 1) * line,
        2 * together,
        max(edges[0], 2 * (edges[1] + LANES)) + LANES,
    ]
    return [-(-n // LINE) * LINE for n in (*(size * n for n in numbers), 8 * together)]


def _compiled(fixed: int) -> tuple[Any, Any]:
    """Forward and backward for one head width known to the compiler (0: any, slower by the loops' remainders).

    ``sources`` [E] are rows of what the edges read, whose numbers are of ``near_kind``: positions in the room if
    ``compact``, else nodes. Tables are the address of the first head's first number and how many there are from one node's
    to the next, matrices those of the relation. ``scratch``: addresses, by :func:`scratch_sizes`, of which nothing is
    taken for granted and nothing left to the next relation.
    Where several relations end in a target, its ``totals`` are 0 before the first, and its sums whatever they are.
    """
    known = fixed > 0

    @_jit
    def forward(  # type: ignore[no-untyped-def]
        sources, indptr, source_nodes, target_nodes, kept, kind, own_kind, near_kind, tables, matrices, scratch, together,
        tile, given_width, on_target, compact, first, last,
    ):  # fmt: skip
        (
            q, q_pitch, k, k_pitch, v, v_pitch, near_k, key_pitch, near_v, row_pitch, to_sums, sums_pitch, to_totals,
            total_pitch, to_highest,
        ) = tables  # fmt: skip
        w_k, w_v, p = matrices
        queries, key_table, row_table = numbers_as(kind, q), numbers_as(kind, k), numbers_as(kind, v)
        keys, rows = numbers_as(near_kind, near_k), numbers_as(near_kind, near_v)
        to_keys, to_rows = numbers_as(own_kind, near_k), numbers_as(own_kind, near_v)
        out, totals = numbers_as(own_kind, to_sums), numbers_as(own_kind, to_totals)
        highest = numbers_as(own_kind, to_highest)
        key_matrix, row_matrix, prior = numbers_as(own_kind, w_k), numbers_as(own_kind, w_v), numbers_as(own_kind, p)
        width = fixed if known else given_width
        line, edges, square = padded(width), len(sources), width * width
        lowest, zero, root = like(prior[0], -np.inf), like(prior[0], 0), like(prior[0], math.sqrt(width))
        masked, targets, count = len(kept) > 0, len(target_nodes), len(source_nodes)
        near = tile >= count
        size_of_room = max(together, TOGETHER) * line
        key_map, given = numbers_as(own_kind, scratch[0]), numbers_as(own_kind, scratch[2])
        own_totals, logits = numbers_as(own_kind, scratch[3]), numbers_as(own_kind, scratch[4])
        value_map, tops = behind(key_map, width * line), behind(own_totals, together)
        places = numbers_as(PLACES, scratch[5])
        turned, around, result = size_of_room, 2 * size_of_room, 3 * size_of_room
        index = address(sources)
        query, found = (turned, result) if on_target else (0, around)
        for h in range(first, last):
            f, column = prior[h] / root, h * width
            matrix(key_matrix, h * square, width, line, on_target, key_map)
            matrix(row_matrix, h * square, width, line, False, value_map)
            to_k, to_v = column, column
            if compact:
                to_k, to_v = 0, 0
                if on_target:
                    gather(key_table, k_pitch, column, source_nodes, 0, count, width, to_keys, to_k, line)
                    gather(row_table, v_pitch, column, source_nodes, 0, count, width, to_rows, to_v, line)
                else:
                    transformed(key_table, k_pitch, column, source_nodes, width, line, key_map, 0, given, to_keys, to_k)
                    transformed(
                        row_table, v_pitch, column, source_nodes, width, line, value_map, 0, given, to_rows, to_v
                    )
            for start in range(0, targets, together):
                size = min(together, targets - start)
                gather(queries, q_pitch, column, target_nodes, start, size, width, given, 0, line)
                if on_target:
                    times(given, 0, key_map, 0, given, turned, size, width, line)
                for i in range(size):
                    fetch(out, target_nodes[start + i] * sums_pitch + column, width)
                origin = indptr[start]
                for i in range(size):
                    places[i] = indptr[start + i]
                for until in range(tile, count + tile, tile):
                    for i in range(size):
                        row, begin, end = query + i * line, places[i], indptr[start + i + 1]
                        stop = end if near else end_of(index, begin, end, until)
                        places[i] = stop
                        next_edge = begin
                        while stop - next_edge >= ENOUGH:
                            e, many = next_edge, min(LANES, stop - next_edge)
                            if near:
                                for other in range(e + LANES, min(e + 2 * LANES, edges)):
                                    ahead = np.int64(index[other])
                                    fetch(keys, to_k + ahead * key_pitch, width)
                                    fetch(rows, to_v + ahead * row_pitch, width)
                            several = spread(f) * dots_of(given, row, index, e, stop - 1, keys, to_k, key_pitch, width)
                            store_first(logits, e - origin, several, many)
                            if masked:
                                for other in range(e, e + many):
                                    if kept[other] == 0:
                                        logits[other - origin] = lowest
                            next_edge += many
                        for e in range(next_edge, stop):
                            if near and e + _AHEAD < edges:
                                ahead = np.int64(index[e + _AHEAD])
                                fetch(keys, to_k + ahead * key_pitch, width)
                                fetch(rows, to_v + ahead * row_pitch, width)
                            s = f * dot(given, row, keys, to_k + np.int64(index[e]) * key_pitch, width)
                            if masked and kept[e] == 0:
                                s = lowest
                            logits[e - origin] = s
                for i in range(size):
                    begin, stop = indptr[start + i] - origin, indptr[start + i + 1] - origin
                    own_totals[i], tops[i] = softmax(logits, begin, stop, lowest, zero)
                    places[i] = indptr[start + i]
                for c in range(0, size * line, LANES):
                    store(given, around + c, spread(zero))
                for until in range(tile, count + tile, tile):
                    for i in range(size):
                        row, begin, end = around + i * line, places[i], indptr[start + i + 1]
                        stop = end if near else end_of(index, begin, end, until)
                        places[i] = stop
                        if own_totals[i] > zero:
                            onto_target(given, row, logits, origin, index, begin, stop, rows, to_v, row_pitch, width)
                if on_target:
                    times(given, around, value_map, 0, given, result, size, width, line)
                for i in range(size):
                    if own_totals[i] == 0:
                        continue
                    own, to = target_nodes[start + i] * total_pitch + h, target_nodes[start + i] * sums_pitch + column
                    if totals[own] == 0:
                        # The first that arrives; nothing has been written here.
                        highest[own], totals[own] = tops[i], own_totals[i]
                        for c in range(0, width, LANES):
                            store_first(out, to + c, load(given, found + i * line + c), width - c)
                        continue
                    top = max(highest[own], tops[i])
                    old_scale, new_scale = exp(highest[own] - top), exp(tops[i] - top)
                    highest[own] = top
                    totals[own] = totals[own] * old_scale + own_totals[i] * new_scale
                    for c in range(0, width, LANES):
                        new = spread(new_scale) * load(given, found + i * line + c)
                        both = spread(old_scale) * load_first(out, to + c, width - c) + new
                        store_first(out, to + c, both, width - c)

    @_jit
    def backward(  # type: ignore[no-untyped-def]
        sources, indptr, source_nodes, target_nodes, kept, kind, own_kind, near_kind, tables, matrices, scratch, together,
        tile, given_width, on_target, compact, first, last,
    ):  # fmt: skip
        (
            q, q_pitch, k, k_pitch, v, v_pitch, d_out, out_pitch, d_q, dq_pitch, d_k, dk_pitch, d_v, dv_pitch, near_k,
            key_pitch, near_v, row_pitch, near_dk, gk_pitch, near_dv, gv_pitch, log_sums, total_pitch, sum_of_shares,
            delta_pitch,
        ) = tables  # fmt: skip
        queries, key_table, row_table = numbers_as(kind, q), numbers_as(kind, k), numbers_as(kind, v)
        slope_table = numbers_as(kind, d_out)
        out, onto_keys, onto_rows = numbers_as(own_kind, d_q), numbers_as(own_kind, d_k), numbers_as(own_kind, d_v)
        keys, rows = numbers_as(near_kind, near_k), numbers_as(near_kind, near_v)
        to_keys, to_rows = numbers_as(own_kind, near_k), numbers_as(own_kind, near_v)
        key_slopes, row_slopes = numbers_as(own_kind, near_dk), numbers_as(own_kind, near_dv)
        log_total, delta = numbers_as(own_kind, log_sums), numbers_as(own_kind, sum_of_shares)
        w_k, w_v, prior = (
            numbers_as(own_kind, matrices[0]),
            numbers_as(own_kind, matrices[1]),
            numbers_as(own_kind, matrices[2]),
        )
        d_w_k, d_w_v, d_prior = (
            numbers_as(own_kind, matrices[3]),
            numbers_as(own_kind, matrices[4]),
            numbers_as(own_kind, matrices[5]),
        )
        width = fixed if known else given_width
        line, edges, square = padded(width), len(sources), width * width
        zero, root = like(prior[0], 0), like(prior[0], math.sqrt(width))
        masked, targets, count = len(kept) > 0, len(target_nodes), len(source_nodes)
        near = tile >= count
        # What is turned in a product is read a little past its last row, and written so.
        room, large = (max(together, TOGETHER) + 1) * line, (width + SIX) * line
        key_map, of_maps = numbers_as(own_kind, scratch[0]), numbers_as(own_kind, scratch[1])
        given, dots = numbers_as(own_kind, scratch[2]), numbers_as(own_kind, scratch[4])
        shares = behind(dots, most_edges(indptr, 1) + LANES)
        value_map, turned = width * line, 2 * width * line
        slopes, query, slope, to_query, around, result = room, 2 * room, 3 * room, 4 * room, 5 * room, 6 * room
        places = numbers_as(PLACES, scratch[5])
        index, bytes_kept = address(sources), address(kept)
        if not on_target:
            query, slope = 0, slopes
        for h in range(first, last):
            f, column, factor_slope = prior[h] / root, h * width, zero
            matrix(w_k, h * square, width, line, on_target, key_map)
            for i in range(width):
                for j in range(line):
                    place = h * square + (j * width + i if on_target else i * width + j)
                    key_map[value_map + i * line + j] = w_v[place] if j < width else zero
                    key_map[turned + i * line + j] = w_k[h * square + i * width + j] if j < width else zero
            for c in range(0, 2 * large, LANES):
                store(of_maps, c, spread(zero))
            to_k, to_v, to_gk, to_gv = column, column, column, column
            if compact:
                to_k, to_v, to_gk, to_gv = 0, 0, 0, 0
                for c in range(0, (count + SIX) * line, LANES):
                    store(key_slopes, c, spread(zero))
                    store(row_slopes, c, spread(zero))
                if on_target:
                    gather(key_table, k_pitch, column, source_nodes, 0, count, width, to_keys, to_k, line)
                    gather(row_table, v_pitch, column, source_nodes, 0, count, width, to_rows, to_v, line)
                else:
                    transformed(key_table, k_pitch, column, source_nodes, width, line, key_map, 0, given, to_keys, to_k)
                    transformed(
                        row_table, v_pitch, column, source_nodes, width, line, key_map, value_map, given, to_rows, to_v
                    )
            for start in range(0, targets, together):
                size = min(together, targets - start)
                gather(queries, q_pitch, column, target_nodes, start, size, width, given, 0, line)
                gather(slope_table, out_pitch, column, target_nodes, start, size, width, given, slopes, line)
                if on_target:
                    times(given, 0, key_map, 0, given, query, size, width, line)
                    times(given, slopes, key_map, value_map, given, slope, size, width, line)
                for i in range(size):
                    fetch(out, target_nodes[start + i] * dq_pitch + column, width)
                    places[i] = indptr[start + i]
                for c in range(0, size * line, LANES):
                    store(given, to_query + c, spread(zero))
                    store(given, around + c, spread(zero))
                for until in range(tile, count + tile, tile):
                    for i in range(size):
                        row, begin, end = i * line, places[i], indptr[start + i + 1]
                        stop = end if near else end_of(index, begin, end, until)
                        places[i] = stop
                        next_edge = begin
                        while stop - next_edge >= ENOUGH:
                            e, many = next_edge, min(LANES, stop - next_edge)
                            if near:
                                for other in range(e + LANES, min(e + 2 * LANES, edges)):
                                    ahead = np.int64(index[other])
                                    fetch(keys, to_k + ahead * key_pitch, width)
                                    fetch(key_slopes, to_gk + ahead * gk_pitch, width)
                            found = dots_of(given, query + row, index, e, stop - 1, keys, to_k, key_pitch, width)
                            store(dots, e - begin, found)
                            if near:
                                for other in range(e + LANES, min(e + 2 * LANES, edges)):
                                    ahead = np.int64(index[other])
                                    fetch(rows, to_v + ahead * row_pitch, width)
                                    fetch(row_slopes, to_gv + ahead * gv_pitch, width)
                            found = dots_of(given, slope + row, index, e, stop - 1, rows, to_v, row_pitch, width)
                            store(shares, e - begin, found)
                            next_edge += many
                        for e in range(next_edge, stop):
                            if near and e + _AHEAD < edges:
                                ahead = np.int64(index[e + _AHEAD])
                                fetch(keys, to_k + ahead * key_pitch, width)
                                fetch(rows, to_v + ahead * row_pitch, width)
                                fetch(key_slopes, to_gk + ahead * gk_pitch, width)
                                fetch(row_slopes, to_gv + ahead * gv_pitch, width)
                            source = np.int64(index[e])
                            dots[e - begin] = dot(given, query + row, keys, to_k + source * key_pitch, width)
                            shares[e - begin] = dot(given, slope + row, rows, to_v + source * row_pitch, width)
                        node = target_nodes[start + i]
                        shift, own_delta = log_total[node * total_pitch + h], delta[node * delta_pitch + h]
                        factor_slope += logit_slopes(
                            dots, shares, stop - begin, bytes_kept, begin, masked, f, shift, own_delta
                        )
                        onto_target(
                            given, to_query + row, dots, begin, index, begin, stop, keys, to_k, key_pitch, width
                        )
                        onto_source(
                            given, query + row, dots, begin, index, begin, stop, key_slopes, to_gk, gk_pitch, width
                        )
                        onto_source(
                            given, slope + row, shares, begin, index, begin, stop, row_slopes, to_gv, gv_pitch, width
                        )
                        if on_target:
                            onto_target(
                                given, around + row, shares, begin, index, begin, stop, rows, to_v, row_pitch, width
                            )
                if on_target:
                    add_gradient(given, to_query, given, 0, of_maps, 0, size, width, line)
                    add_gradient(given, around, given, slopes, of_maps, large, size, width, line)
                    times(given, to_query, key_map, turned, given, result, size, width, line)
                at = result if on_target else to_query
                scatter(out, dq_pitch, column, target_nodes, start, size, width, given, at, line)
            if compact and on_target:
                scatter(onto_keys, dk_pitch, column, source_nodes, 0, count, width, key_slopes, to_gk, line)
                scatter(onto_rows, dv_pitch, column, source_nodes, 0, count, width, row_slopes, to_gv, line)
            elif compact:
                # Sources are gathered once more: those side by side have been multiplied.
                for values in range(2):
                    matrix(w_v if values else w_k, h * square, width, line, True, key_map)
                    table, pitch = (row_table, v_pitch) if values else (key_table, k_pitch)
                    onto, onto_pitch = (onto_rows, dv_pitch) if values else (onto_keys, dk_pitch)
                    inner, begin = (row_slopes, to_gv) if values else (key_slopes, to_gk)
                    for start in range(0, count, TOGETHER):
                        size, at = min(TOGETHER, count - start), begin + start * line
                        gather(table, pitch, column, source_nodes, start, size, width, given, 0, line)
                        add_gradient(given, 0, inner, at, of_maps, values * large, size, width, line)
                        times(inner, at, key_map, 0, given, result, size, width, line)
                        scatter(onto, onto_pitch, column, source_nodes, start, size, width, given, result, line)
            for i in range(width):
                for j in range(width):
                    d_w_k[h * square + i * width + j] = of_maps[i * line + j]
                    d_w_v[h * square + i * width + j] = of_maps[large + i * line + j]
            d_prior[h] = factor_slope / root

    return forward, backward


forward, backward = _compiled(0)
forward_32, backward_32 = _compiled(32)
forward_64, backward_64 = _compiled(64)
