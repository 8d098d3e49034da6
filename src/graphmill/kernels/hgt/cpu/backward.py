"""The gradients of :mod:`graphmill.kernels.hgt.cpu.forward` for one relation and some heads. The logits are recomputed."""

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
    add_gradient,
    dot,
    dots_of,
    end_of,
    gather,
    logit_slopes,
    matrix,
    most_edges,
    onto_source,
    onto_target,
    scatter,
    times,
)
from graphmill.kernels.products.cpu import SIX
from graphmill.kernels.runtime.jit import jit_fast
from graphmill.kernels.runtime.vectors import LANES, address, behind, fetch, like, numbers_as, padded, spread, store


class Slopes(NamedTuple):
    """Addresses and row strides of the targets' queries and their gradient, of the result's gradient, of the softmax's
    log total and Σ α·dα; and the ``Sources`` of the gradients of k and v."""

    q: Any
    q_pitch: Any
    d_q: Any
    dq_pitch: Any
    d_out: Any
    out_pitch: Any
    log_total: Any
    total_pitch: Any
    delta: Any
    delta_pitch: Any
    sources: Any


@jit_fast
def backward(relation, kinds, sources, slopes, matrices, scratch, lanes, heads):  # type: ignore[no-untyped-def]
    """Add one relation's gradients of heads ``heads[0]:heads[1]`` to those of q, k, v; write its matrices' gradients.

    ``matrices``: addresses of W^K, W^V and the prior; and of their gradients. ``scratch``: as in forward.
    """
    width = width_of(lanes, relation.width)
    line, square, own = padded(width), width * width, kinds.own
    (of_k, of_v, of_prior), (of_dk, of_dv, of_dprior) = matrices
    w_k, w_v, prior = numbers_as(own, of_k), numbers_as(own, of_v), numbers_as(own, of_prior)
    d_prior, root = numbers_as(own, of_dprior), like(prior[0], math.sqrt(width))
    zero, nodes = like(prior[0], 0), relation.target_nodes
    queries, above = numbers_as(kinds.rows, slopes.q), numbers_as(kinds.rows, slopes.d_out)
    to_q, maps = numbers_as(own, slopes.d_q), numbers_as(own, scratch[0])
    of_maps, given = numbers_as(own, scratch[1]), numbers_as(own, scratch[2])
    places = numbers_as(PLACES, scratch[5])
    # Products with a transposed operand read and write slightly past the last row.
    room, large = (max(relation.together, TOGETHER) + 1) * line, (width + SIX) * line
    slope, turned_query, turned_slope, to_query, around, result = room, 2 * room, 3 * room, 4 * room, 5 * room, 6 * room
    rows = (turned_query, turned_slope, to_query, around) if relation.on_target else (0, slope, to_query, around)
    for h in range(heads[0], heads[1]):
        column, factor_slope = h * width, zero
        matrix(w_k, h * square, width, relation.on_target, maps)
        matrix(w_v, h * square, width, relation.on_target, behind(maps, width * line))
        matrix(w_k, h * square, width, False, behind(maps, 2 * width * line))
        _clear(of_maps, 0, 2 * large, zero)
        into = ends_of(own, slopes.sources, column, width, relation.compact)
        if relation.compact:
            _clear(into.keys[0], 0, (len(relation.source_nodes) + SIX) * line, zero)
            _clear(into.values[0], 0, (len(relation.source_nodes) + SIX) * line, zero)
            side_by_side(relation, kinds, sources, maps, given, lanes, column)
        ends = ends_of(kinds.near, sources, column, width, relation.compact)
        for start in range(0, len(nodes), relation.together):
            size = min(relation.together, len(nodes) - start)
            gather((queries, column, slopes.q_pitch), nodes, start, size, width, (given, 0, line))
            gather((above, column, slopes.out_pitch), nodes, start, size, width, (given, slope, line))
            if relation.on_target:
                times(given, 0, maps, 0, given, turned_query, size, width, line)
                times(given, slope, maps, width * line, given, turned_slope, size, width, line)
            for i in range(size):
                fetch(to_q, nodes[start + i] * slopes.dq_pitch + column, width)
                places[i] = relation.indptr[start + i]
            _clear(given, to_query, size * line, zero)
            _clear(given, around, size * line, zero)
            numbers = (prior[h] / root, h, slopes, numbers_as(own, scratch[4]), places)
            factor_slope += _edges(relation, kinds, (ends, into), (given, rows), (start, size), numbers, lanes)
            if relation.on_target:
                add_gradient(given, to_query, given, 0, of_maps, 0, size, width, line)
                add_gradient(given, around, given, slope, of_maps, large, size, width, line)
                times(given, to_query, maps, 2 * width * line, given, result, size, width, line)
            at = result if relation.on_target else to_query
            scatter((to_q, column, slopes.dq_pitch), nodes, start, size, width, (given, at, line))
        if relation.compact:
            _sources(relation, kinds, sources, slopes, into, (w_k, w_v, maps, of_maps, given), h, lanes)
        _hand_over(of_maps, large, width, numbers_as(own, of_dk), numbers_as(own, of_dv), h * square)
        d_prior[h] = factor_slope / root


@jit_fast
def _clear(table, at, count, zero):  # type: ignore[no-untyped-def]
    for c in range(at, at + count, LANES):
        store(table, c, spread(zero))


@jit_fast
def _edges(relation, kinds, both, work, span, numbers, lanes):  # type: ignore[no-untyped-def]
    """Process the edges of some targets, tile by tile of the sources; returns the gradient of the logits' factor."""
    width = width_of(lanes, relation.width)
    (ends, into), (given, rows), (start, size) = both, work, span
    query, slope, to_query, around = rows
    f, h, slopes, dots, places = numbers
    line, indptr, index, zero = padded(width), relation.indptr, relation.index, like(f, 0)
    shares, kept = behind(dots, most_edges(indptr, 1) + LANES), address(relation.kept)
    log_total, delta = numbers_as(kinds.own, slopes.log_total), numbers_as(kinds.own, slopes.delta)
    count, tile, masked = len(relation.source_nodes), relation.tile, len(relation.kept) > 0
    near, factor_slope = tile >= count, zero
    for until in range(tile, count + tile, tile):
        for i in range(size):
            row, begin, end = i * line, places[i], indptr[start + i + 1]
            stop = end if near else end_of(index, begin, end, until)
            places[i] = stop
            _dots(relation, both, (given, query + row, slope + row), (begin, stop), (dots, shares), near, lanes)
            node = relation.target_nodes[start + i]
            shift, own_delta = log_total[node * slopes.total_pitch + h], delta[node * slopes.delta_pitch + h]
            factor_slope += logit_slopes(dots, shares, stop - begin, (kept, begin, masked), f, shift, own_delta)
            edges = (index, begin, stop)
            onto_target(given, to_query + row, (dots, begin), edges, ends.keys, width)
            onto_source(given, query + row, (dots, begin), edges, into.keys, width)
            onto_source(given, slope + row, (shares, begin), edges, into.values, width)
            if relation.on_target:
                onto_target(given, around + row, (shares, begin), edges, ends.values, width)
    return factor_slope


@jit_fast
def _dots(relation, both, rows, edges, found, near, lanes):  # type: ignore[no-untyped-def]
    """For a target's edges, compute q·k and d·v, where d is the result's gradient."""
    width = width_of(lanes, relation.width)
    (ends, into), (given, query, slope), (begin, stop), (dots, shares) = both, rows, edges, found
    index, all_edges, next_edge = relation.index, relation.edges, begin
    (keys, to_k, key_pitch), (values, to_v, value_pitch) = ends.keys, ends.values
    while stop - next_edge >= ENOUGH:
        e = next_edge
        if near:
            fetch_sources(ends, index, e, all_edges, width)
            fetch_sources(into, index, e, all_edges, width)
        some = (index, e, stop - 1)
        store(dots, e - begin, dots_of(given, query, some, ends.keys, width))
        store(shares, e - begin, dots_of(given, slope, some, ends.values, width))
        next_edge += min(LANES, stop - next_edge)
    for e in range(next_edge, stop):
        if near and e + AHEAD < all_edges:
            fetch_source(ends, np.int64(index[e + AHEAD]), width)
            fetch_source(into, np.int64(index[e + AHEAD]), width)
        source = np.int64(index[e])
        dots[e - begin] = dot(given, query, keys, to_k + source * key_pitch, width)
        shares[e - begin] = dot(given, slope, values, to_v + source * value_pitch, width)


@jit_fast
def _sources(relation, kinds, sources, slopes, into, work, h, lanes):  # type: ignore[no-untyped-def]
    """Turn gradients of packed sources into gradients of their rows and, if these are on their side, of the matrices."""
    width = width_of(lanes, relation.width)
    w_k, w_v, maps, of_maps, given = work
    line, nodes, column = padded(width), relation.source_nodes, h * width
    onto = ends_of(kinds.own, slopes.sources, column, width, False)
    rows = ends_of(kinds.rows, sources, column, width, False)
    if relation.on_target:
        scatter(onto.keys, nodes, 0, len(nodes), width, into.keys)
        scatter(onto.values, nodes, 0, len(nodes), width, into.values)
        return
    # Gather the sources again: the packed ones have been multiplied.
    room, large = 6 * (max(relation.together, TOGETHER) + 1) * line, (width + SIX) * line
    for part in range(2):
        table, (inner, _, _), to = (
            (rows.values, into.values, onto.values) if part else (rows.keys, into.keys, onto.keys)
        )
        matrix(w_v if part else w_k, h * width * width, width, True, maps)
        for start in range(0, len(nodes), TOGETHER):
            size, at = min(TOGETHER, len(nodes) - start), start * line
            gather(table, nodes, start, size, width, (given, 0, line))
            add_gradient(given, 0, inner, at, of_maps, part * large, size, width, line)
            times(inner, at, maps, 0, given, room, size, width, line)
            scatter(to, nodes, start, size, width, (given, room, line))


@jit_fast
def _hand_over(of_maps, large, width, d_w_k, d_w_v, at):  # type: ignore[no-untyped-def]
    """Write one head's gradients of the matrices, without the padding."""
    line = padded(width)
    for i in range(width):
        for j in range(width):
            d_w_k[at + i * width + j] = of_maps[i * line + j]
            d_w_v[at + i * width + j] = of_maps[large + i * line + j]
