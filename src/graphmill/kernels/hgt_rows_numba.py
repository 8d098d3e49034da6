"""HGT's attention of one relation for some heads, compiled: products, edges and sums in one pass.

Some targets at a time go through it: their queries are gathered and multiplied, their edges followed, and what is found is
multiplied again and merged into the softmax over all relations, before the next ones come. Nothing of them is written in
between. In calls of its own for each operation (``hgt_relations``) every relation's rows were gathered, multiplied and put
back through memory, and most relations of a sparse graph have about one edge for each of those rows.

Sources are met at random. Where the matrices are applied to them, or many edges share one, they are put side by side first,
in a room that one head after the other has; elsewhere the edges read, and add to, the rows of all nodes.

``hgt_passes_numba`` takes all relations through it, and says what is handed over.
"""

from __future__ import annotations

import math
from typing import Any

import numba
import numpy as np

from graphmill.kernels.compiled_math import FAST, exp, prefetch
from graphmill.kernels.products_numba import SIX, whole_blocks
from graphmill.kernels.vectors import (
    LANES,
    address,
    hold,
    like,
    load,
    load_first,
    numbers_as,
    padded,
    spread,
    store,
    store_first,
    total,
)

_jit = numba.njit(nogil=True, fastmath=FAST, error_model="numpy", cache=True)
_AHEAD = 8
"""How many edges ahead the rows of their sources are fetched: they are met at random."""
TOGETHER = 8 * SIX
"""Targets that go through together, and sources that are multiplied together."""


@_jit
def _fetch(table, first, width):  # type: ignore[no-untyped-def]
    for place in range(first, first + width, LANES):
        prefetch(table, place)


@_jit
def _gather(table, pitch, column, nodes, start, size, width, room, to, line):  # type: ignore[no-untyped-def]
    """Rows of nodes ``start`` to ``start + size``, side by side; the next ones are fetched."""
    for i in range(start + size, min(start + size + size, len(nodes))):
        _fetch(table, nodes[i] * pitch + column, width)
    for i in range(size):
        at, place = nodes[start + i] * pitch + column, to + i * line
        for c in range(0, width, LANES):
            store(room, place + c, load_first(table, at + c, width - c))


@_jit
def _scatter(table, pitch, column, nodes, start, size, width, room, at, line):  # type: ignore[no-untyped-def]
    """Add rows that lie side by side to those of nodes ``start`` to ``start + size``."""
    for i in range(size):
        to, place = nodes[start + i] * pitch + column, at + i * line
        for c in range(0, width, LANES):
            found = load_first(table, to + c, width - c) + load(room, place + c)
            store_first(table, to + c, found, width - c)


@_jit
def _matrix(table, at, width, line, turned, room):  # type: ignore[no-untyped-def]
    """A matrix [D, D], or its transpose, with zeros up to whole vectors."""
    for i in range(width):
        for j in range(width):
            room[i * line + j] = table[at + (j * width + i if turned else i * width + j)]
        for j in range(width, line):
            room[i * line + j] = 0


@_jit
def _transformed(table, pitch, column, nodes, width, line, matrix, room, out, to):  # type: ignore[no-untyped-def]
    """Rows of all nodes, times a matrix, side by side."""
    for start in range(0, len(nodes), TOGETHER):
        size = min(TOGETHER, len(nodes) - start)
        _gather(table, pitch, column, nodes, start, size, width, room, 0, line)
        whole_blocks(room, 0, line, 1, matrix, 0, line, width, False, out, to + start * line, line, size, width)


@_jit
def _most_edges(indptr, together):  # type: ignore[no-untyped-def]
    """Edges of so many targets in a row, at most."""
    most, last = 0, len(indptr) - 1
    for start in range(0, last, together):
        most = max(most, indptr[min(start + together, last)] - indptr[start])
    return most


@_jit
def _end(source, begin, end, until):  # type: ignore[no-untyped-def]
    """Where the edges of sources from ``until`` on begin, among those of one target."""
    while begin < end and source[begin] < until:
        begin += 1
    return begin


@_jit
def _dot(left, i, right, j, width):  # type: ignore[no-untyped-def]
    """Of ``width`` numbers; on the left there are zeros up to whole vectors."""
    sums = load(left, i) * load_first(right, j, width)
    for c in range(LANES, width, LANES):
        sums += load(left, i + c) * load_first(right, j + c, width - c)
    return total(sums)


@_jit
def _add_times(room, to, factor, table, at, width):  # type: ignore[no-untyped-def]
    """To a row that has room for whole vectors."""
    factors = spread(factor)
    for c in range(0, width, LANES):
        store(room, to + c, load(room, to + c) + factors * load_first(table, at + c, width - c))


@_jit
def _add_times_first(table, to, factor, room, at, width):  # type: ignore[no-untyped-def]
    """From a row that has room for whole vectors."""
    factors = spread(factor)
    for c in range(0, width, LANES):
        found = load_first(table, to + c, width - c) + factors * load(room, at + c)
        store_first(table, to + c, found, width - c)


def _compiled(fixed: int) -> tuple[Any, Any]:
    """Forward and backward for one head width known to the compiler (0: any, slower by the loops' remainders).

    ``sources`` [E] are rows of what the edges read: positions in the room if ``compact``, else nodes. Tables are the address
    of the first head's first number and how many there are from one node's to the next, matrices those of the relation.
    Where several relations end in a target, its ``totals`` are 0 before the first, and its sums whatever they are.
    """
    known = fixed > 0

    @_jit
    def forward(  # type: ignore[no-untyped-def]
        sources, indptr, source_nodes, target_nodes, kept, kind, own_kind, tables, matrices, together, tile, given_width,
        on_target, compact, first, last,
    ):  # fmt: skip
        (
            q, q_pitch, k, k_pitch, v, v_pitch, near_k, key_pitch, near_v, row_pitch, to_sums, sums_pitch, to_totals,
            total_pitch, to_highest,
        ) = tables  # fmt: skip
        w_k, w_v, p = matrices
        queries, key_table, row_table = numbers_as(kind, q), numbers_as(kind, k), numbers_as(kind, v)
        keys, rows = numbers_as(own_kind, near_k), numbers_as(own_kind, near_v)
        out, totals = numbers_as(own_kind, to_sums), numbers_as(own_kind, to_totals)
        highest = numbers_as(own_kind, to_highest)
        key_matrix, row_matrix, prior = numbers_as(own_kind, w_k), numbers_as(own_kind, w_v), numbers_as(own_kind, p)
        width = fixed if known else given_width
        line, edges, square = padded(width), len(sources), width * width
        lowest, zero, root = like(prior[0], -np.inf), like(prior[0], 0), like(prior[0], math.sqrt(width))
        masked, targets, count = len(kept) > 0, len(target_nodes), len(source_nodes)
        near = tile >= count
        key_room, value_room = np.empty(width * line, own_kind.dtype), np.empty(width * line, own_kind.dtype)
        rooms = np.zeros((4, max(together, TOGETHER) * line), own_kind.dtype)
        own_totals, tops, places = (
            np.empty(together, own_kind.dtype),
            np.empty(together, own_kind.dtype),
            np.empty(together, np.int64),
        )
        logit_room = np.empty(_most_edges(indptr, together), own_kind.dtype)
        key_map, value_map, logits = address(key_room), address(value_room), address(logit_room)
        given = address(rooms)
        size_of_room = rooms.shape[1]
        turned, around, result = size_of_room, 2 * size_of_room, 3 * size_of_room
        index = address(sources)
        query, found = (turned, result) if on_target else (0, around)
        for h in range(first, last):
            f, column = prior[h] / root, h * width
            _matrix(key_matrix, h * square, width, line, on_target, key_map)
            _matrix(row_matrix, h * square, width, line, False, value_map)
            to_k, to_v = column, column
            if compact:
                to_k, to_v = 0, 0
                if on_target:
                    _gather(key_table, k_pitch, column, source_nodes, 0, count, width, keys, to_k, line)
                    _gather(row_table, v_pitch, column, source_nodes, 0, count, width, rows, to_v, line)
                else:
                    _transformed(key_table, k_pitch, column, source_nodes, width, line, key_map, given, keys, to_k)
                    _transformed(row_table, v_pitch, column, source_nodes, width, line, value_map, given, rows, to_v)
            for start in range(0, targets, together):
                size = min(together, targets - start)
                _gather(queries, q_pitch, column, target_nodes, start, size, width, given, 0, line)
                if on_target:
                    whole_blocks(given, 0, line, 1, key_map, 0, line, width, False, given, turned, line, size, width)
                for i in range(size):
                    _fetch(out, target_nodes[start + i] * sums_pitch + column, width)
                origin = indptr[start]
                for i in range(size):
                    places[i] = indptr[start + i]
                for until in range(tile, count + tile, tile):
                    for i in range(size):
                        row, begin, end = query + i * line, places[i], indptr[start + i + 1]
                        stop = end if near else _end(index, begin, end, until)
                        places[i] = stop
                        for e in range(begin, stop):
                            if near and e + _AHEAD < edges:
                                ahead = np.int64(index[e + _AHEAD])
                                _fetch(keys, to_k + ahead * key_pitch, width)
                                _fetch(rows, to_v + ahead * row_pitch, width)
                            s = f * _dot(given, row, keys, to_k + np.int64(index[e]) * key_pitch, width)
                            if masked and kept[e] == 0:
                                s = lowest
                            logits[e - origin] = s
                for i in range(size):
                    begin, stop = indptr[start + i] - origin, indptr[start + i + 1] - origin
                    top, z = lowest, zero
                    for e in range(begin, stop):
                        top = max(top, logits[e])
                    if top > lowest:
                        for e in range(begin, stop):
                            p = exp(logits[e] - top)
                            logits[e] = p
                            z += p
                    own_totals[i], tops[i] = z, top
                    places[i] = indptr[start + i]
                for c in range(0, size * line, LANES):
                    store(given, around + c, spread(zero))
                for until in range(tile, count + tile, tile):
                    for i in range(size):
                        row, begin, end = around + i * line, places[i], indptr[start + i + 1]
                        stop = end if near else _end(index, begin, end, until)
                        places[i] = stop
                        if own_totals[i] > zero:
                            for e in range(begin, stop):
                                at = to_v + np.int64(index[e]) * row_pitch
                                _add_times(given, row, logits[e - origin], rows, at, width)
                if on_target:
                    whole_blocks(
                        given, around, line, 1, value_map, 0, line, width, False, given, result, line, size, width
                    )
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
        hold(key_room)
        hold(value_room)
        hold(rooms)
        hold(logit_room)

    @_jit
    def backward(  # type: ignore[no-untyped-def]
        sources, indptr, source_nodes, target_nodes, kept, kind, own_kind, tables, matrices, together, tile, given_width,
        on_target, compact, first, last,
    ):  # fmt: skip
        (
            q, q_pitch, k, k_pitch, v, v_pitch, d_out, out_pitch, d_q, dq_pitch, d_k, dk_pitch, d_v, dv_pitch, near_k,
            key_pitch, near_v, row_pitch, near_dk, gk_pitch, near_dv, gv_pitch, log_sums, total_pitch, sum_of_shares,
            delta_pitch,
        ) = tables  # fmt: skip
        queries, key_table, row_table = numbers_as(kind, q), numbers_as(kind, k), numbers_as(kind, v)
        slope_table = numbers_as(kind, d_out)
        out, onto_keys, onto_rows = numbers_as(own_kind, d_q), numbers_as(own_kind, d_k), numbers_as(own_kind, d_v)
        keys, rows = numbers_as(own_kind, near_k), numbers_as(own_kind, near_v)
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
        rooms, maps, into = (
            np.zeros((7, room), own_kind.dtype),
            np.empty((3, width * line), own_kind.dtype),
            np.empty((2, large), own_kind.dtype),
        )
        most = _most_edges(indptr, 1)
        dot_room, share_room, places = (
            np.empty(most, own_kind.dtype),
            np.empty(most, own_kind.dtype),
            np.empty(together, np.int64),
        )
        given, dots, shares = address(rooms), address(dot_room), address(share_room)
        slopes, query, slope, to_query, around, result = room, 2 * room, 3 * room, 4 * room, 5 * room, 6 * room
        key_map = address(maps)
        value_map, turned = width * line, 2 * width * line
        of_maps = address(into)
        index = address(sources)
        if not on_target:
            query, slope = 0, slopes
        for h in range(first, last):
            f, column, factor_slope = prior[h] / root, h * width, zero
            _matrix(w_k, h * square, width, line, on_target, key_map)
            for i in range(width):
                for j in range(line):
                    place = h * square + (j * width + i if on_target else i * width + j)
                    maps[1, i * line + j] = w_v[place] if j < width else zero
                    maps[2, i * line + j] = w_k[h * square + i * width + j] if j < width else zero
            into[:] = 0
            to_k, to_v, to_gk, to_gv = column, column, column, column
            if compact:
                to_k, to_v, to_gk, to_gv = 0, 0, 0, 0
                for c in range(0, (count + SIX) * line, LANES):
                    store(key_slopes, c, spread(zero))
                    store(row_slopes, c, spread(zero))
                if on_target:
                    _gather(key_table, k_pitch, column, source_nodes, 0, count, width, keys, to_k, line)
                    _gather(row_table, v_pitch, column, source_nodes, 0, count, width, rows, to_v, line)
                else:
                    for start in range(0, count, TOGETHER):
                        size, at = min(TOGETHER, count - start), start * line
                        _gather(key_table, k_pitch, column, source_nodes, start, size, width, given, 0, line)
                        whole_blocks(
                            given, 0, line, 1, key_map, 0, line, width, False, keys, to_k + at, line, size, width
                        )
                        _gather(row_table, v_pitch, column, source_nodes, start, size, width, given, 0, line)
                        whole_blocks(
                            given,
                            0,
                            line,
                            1,
                            key_map,
                            value_map,
                            line,
                            width,
                            False,
                            rows,
                            to_v + at,
                            line,
                            size,
                            width,
                        )
            for start in range(0, targets, together):
                size = min(together, targets - start)
                _gather(queries, q_pitch, column, target_nodes, start, size, width, given, 0, line)
                _gather(slope_table, out_pitch, column, target_nodes, start, size, width, given, slopes, line)
                if on_target:
                    whole_blocks(given, 0, line, 1, key_map, 0, line, width, False, given, query, line, size, width)
                    whole_blocks(
                        given, slopes, line, 1, key_map, value_map, line, width, False, given, slope, line, size, width
                    )
                for i in range(size):
                    _fetch(out, target_nodes[start + i] * dq_pitch + column, width)
                    places[i] = indptr[start + i]
                for c in range(0, size * line, LANES):
                    store(given, to_query + c, spread(zero))
                    store(given, around + c, spread(zero))
                for until in range(tile, count + tile, tile):
                    for i in range(size):
                        row, begin, end = i * line, places[i], indptr[start + i + 1]
                        stop = end if near else _end(index, begin, end, until)
                        places[i] = stop
                        for e in range(begin, stop):
                            if near and e + _AHEAD < edges:
                                ahead = np.int64(index[e + _AHEAD])
                                _fetch(keys, to_k + ahead * key_pitch, width)
                                _fetch(rows, to_v + ahead * row_pitch, width)
                                _fetch(key_slopes, to_gk + ahead * gk_pitch, width)
                                _fetch(row_slopes, to_gv + ahead * gv_pitch, width)
                            other = np.int64(index[e])
                            dots[e - begin] = _dot(given, query + row, keys, to_k + other * key_pitch, width)
                            shares[e - begin] = _dot(given, slope + row, rows, to_v + other * row_pitch, width)
                        node = target_nodes[start + i]
                        shift, own_delta = log_total[node * total_pitch + h], delta[node * delta_pitch + h]
                        for e in range(stop - begin):
                            s = dots[e]
                            p = exp(s * f - shift)
                            if masked and kept[begin + e] == 0:
                                p = zero
                            ds = p * (shares[e] - own_delta)
                            factor_slope += ds * s
                            dots[e] = ds * f
                            shares[e] = p
                        for e in range(begin, stop):
                            other, ds, p = np.int64(index[e]), dots[e - begin], shares[e - begin]
                            _add_times(given, to_query + row, ds, keys, to_k + other * key_pitch, width)
                            _add_times_first(key_slopes, to_gk + other * gk_pitch, ds, given, query + row, width)
                            _add_times_first(row_slopes, to_gv + other * gv_pitch, p, given, slope + row, width)
                            if on_target:
                                _add_times(given, around + row, p, rows, to_v + other * row_pitch, width)
                if on_target:
                    whole_blocks(given, to_query, 1, line, given, 0, line, size, True, of_maps, 0, line, width, width)
                    whole_blocks(
                        given, around, 1, line, given, slopes, line, size, True, of_maps, large, line, width, width
                    )
                    whole_blocks(
                        given, to_query, line, 1, key_map, turned, line, width, False, given, result, line, size, width
                    )
                at = result if on_target else to_query
                _scatter(out, dq_pitch, column, target_nodes, start, size, width, given, at, line)
            if compact and on_target:
                _scatter(onto_keys, dk_pitch, column, source_nodes, 0, count, width, key_slopes, to_gk, line)
                _scatter(onto_rows, dv_pitch, column, source_nodes, 0, count, width, row_slopes, to_gv, line)
            elif compact:
                # Sources are gathered once more: those side by side have been multiplied.
                for values in range(2):
                    _matrix(w_v if values else w_k, h * square, width, line, True, key_map)
                    table, pitch = (row_table, v_pitch) if values else (key_table, k_pitch)
                    onto, onto_pitch = (onto_rows, dv_pitch) if values else (onto_keys, dk_pitch)
                    inner, begin = (row_slopes, to_gv) if values else (key_slopes, to_gk)
                    for start in range(0, count, TOGETHER):
                        size, at = min(TOGETHER, count - start), begin + start * line
                        _gather(table, pitch, column, source_nodes, start, size, width, given, 0, line)
                        whole_blocks(
                            given, 0, 1, line, inner, at, line, size, True, of_maps, values * large, line, width, width
                        )
                        whole_blocks(
                            inner, at, line, 1, key_map, 0, line, width, False, given, result, line, size, width
                        )
                        _scatter(onto, onto_pitch, column, source_nodes, start, size, width, given, result, line)
            for i in range(width):
                for j in range(width):
                    d_w_k[h * square + i * width + j] = into[0, i * line + j]
                    d_w_v[h * square + i * width + j] = into[1, i * line + j]
            d_prior[h] = factor_slope / root
        hold(rooms)
        hold(maps)
        hold(into)
        hold(dot_room)
        hold(share_room)

    return forward, backward


forward, backward = _compiled(0)
forward_32, backward_32 = _compiled(32)
forward_64, backward_64 = _compiled(64)
