"""Building blocks of a relation's pass, compiled: gathering and scattering rows, sums over a target's edges, softmax.

``forward`` and ``backward`` combine them. Tables are addresses. Loops over widths known at compile time have no remainders.
"""

from __future__ import annotations

import numpy as np

from graphmill.kernels.products.cpu import SIX, whole_blocks
from graphmill.kernels.runtime.compiled_math import exp
from graphmill.kernels.runtime.jit import jit_fast
from graphmill.kernels.runtime.vector_math import (
    exponential,
    first_of,
    highest,
    larger,
    total,
    total_of_each,
    where_set,
)
from graphmill.kernels.runtime.vectors import (
    LANES,
    fetch,
    like,
    load,
    load_first,
    load_four,
    load_like,
    load_two,
    padded,
    spread,
    spread_like,
    store,
    store_first,
)

TOGETHER = 8 * SIX
"""Number of rows in a block, of targets and of sources that are multiplied."""
AHEAD = 8
"""Number of edges by which source rows are prefetched, because their order is random."""
ENOUGH = LANES // 2
"""With at least this many edges left, sixteen edges are multiplied at once, even if some of them are unused."""


@jit_fast
def gather(rows, nodes, start, size, width, into):  # type: ignore[no-untyped-def]
    """Copy the rows of nodes ``start`` to ``start + size`` into a contiguous buffer, and prefetch the next ones.

    ``rows``: table, first column, row stride. ``into``: buffer, offset, row stride.
    """
    (table, column, pitch), (room, to, line) = rows, into
    for i in range(start + size, min(start + size + size, len(nodes))):
        fetch(table, nodes[i] * pitch + column, width)
    for i in range(size):
        at, place = nodes[start + i] * pitch + column, to + i * line
        for c in range(0, width, LANES):
            store(room, place + c, load_first(table, at + c, width - c))


@jit_fast
def scatter(rows, nodes, start, size, width, given):  # type: ignore[no-untyped-def]
    """Add rows of a contiguous buffer to the rows of nodes ``start`` to ``start + size``. See :func:`gather`."""
    (table, column, pitch), (room, at, line) = rows, given
    for i in range(size):
        to, place = nodes[start + i] * pitch + column, at + i * line
        for c in range(0, width, LANES):
            found = load_first(table, to + c, width - c) + load(room, place + c)
            store_first(table, to + c, found, width - c)


@jit_fast
def matrix(table, at, width, turned, room):  # type: ignore[no-untyped-def]
    """Copy a matrix [D, D], or its transpose, with rows zero-padded to whole vectors."""
    line = padded(width)
    for i in range(width):
        for j in range(width):
            room[i * line + j] = table[at + (j * width + i if turned else i * width + j)]
        for j in range(width, line):
            room[i * line + j] = 0


@jit_fast
def times(left, at, matrix, of_matrix, out, to, rows, width, line):  # type: ignore[no-untyped-def]
    """out[to + r · line + c] = Σ_t left[at + r · line + t] · matrix[of_matrix + t · line + c]: rows times a matrix."""
    whole_blocks((left, at, line, 1), (matrix, of_matrix, line, width), (out, to, line, False), rows, width)


@jit_fast
def add_gradient(left, at, right, beside, out, to, rows, width, line):  # type: ignore[no-untyped-def]
    """out[to + i · line + c] += Σ_r left[at + r · line + i] · right[beside + r · line + c]: the matrix's gradient."""
    whole_blocks((left, at, 1, line), (right, beside, line, rows), (out, to, line, True), width, width)


@jit_fast
def transformed(rows, nodes, width, maps, room, out):  # type: ignore[no-untyped-def]
    """Rows of all nodes (:func:`gather`) times a matrix, in a contiguous buffer."""
    line = padded(width)
    for start in range(0, len(nodes), TOGETHER):
        size = min(TOGETHER, len(nodes) - start)
        gather(rows, nodes, start, size, width, (room, 0, line))
        times(room, 0, maps, 0, out, start * line, size, width, line)


@jit_fast
def most_edges(indptr, together):  # type: ignore[no-untyped-def]
    """Largest number of edges of ``together`` consecutive targets."""
    most, last = 0, len(indptr) - 1
    for start in range(0, last, together):
        most = max(most, indptr[min(start + together, last)] - indptr[start])
    return most


@jit_fast
def end_of(source, begin, end, until):  # type: ignore[no-untyped-def]
    """The first edge of one target whose source is at least ``until``."""
    while begin < end and source[begin] < until:
        begin += 1
    return begin


@jit_fast
def _products(left, i, right, j, width):  # type: ignore[no-untyped-def]
    """Sixteen partial sums of a dot product of ``width`` numbers; ``left`` is zero-padded to whole vectors."""
    sums = load(left, i) * load_first(right, j, width)
    for c in range(LANES, width, LANES):
        sums += load(left, i + c) * load_first(right, j + c, width - c)
    return sums


@jit_fast
def dot(left, i, right, j, width):  # type: ignore[no-untyped-def]
    """Dot product of ``width`` numbers; ``left`` is zero-padded to whole vectors."""
    return total(_products(left, i, right, j, width))


@jit_fast
def _at(index, e, last, to, pitch):  # type: ignore[no-untyped-def]
    return to + np.int64(index[min(e, last)]) * pitch


@jit_fast
def dots_of(left, i, edges, rows, width):  # type: ignore[no-untyped-def]
    """A row's dot products with the rows of 16 edges from ``e`` on, as one vector; after ``last``, it is repeated."""
    (index, e, last), (right, to, pitch) = edges, rows
    return total_of_each(
        (
            _products(left, i, right, _at(index, e, last, to, pitch), width),
            _products(left, i, right, _at(index, e + 1, last, to, pitch), width),
            _products(left, i, right, _at(index, e + 2, last, to, pitch), width),
            _products(left, i, right, _at(index, e + 3, last, to, pitch), width),
            _products(left, i, right, _at(index, e + 4, last, to, pitch), width),
            _products(left, i, right, _at(index, e + 5, last, to, pitch), width),
            _products(left, i, right, _at(index, e + 6, last, to, pitch), width),
            _products(left, i, right, _at(index, e + 7, last, to, pitch), width),
            _products(left, i, right, _at(index, e + 8, last, to, pitch), width),
            _products(left, i, right, _at(index, e + 9, last, to, pitch), width),
            _products(left, i, right, _at(index, e + 10, last, to, pitch), width),
            _products(left, i, right, _at(index, e + 11, last, to, pitch), width),
            _products(left, i, right, _at(index, e + 12, last, to, pitch), width),
            _products(left, i, right, _at(index, e + 13, last, to, pitch), width),
            _products(left, i, right, _at(index, e + 14, last, to, pitch), width),
            _products(left, i, right, _at(index, e + 15, last, to, pitch), width),
        )
    )


@jit_fast
def softmax(logits, begin, stop, lowest, zero):  # type: ignore[no-untyped-def]
    """Replace each logit x by e^(x − highest). Returns their sum and the highest; the sum is 0 if all logits are −∞."""
    if stop - begin < ENOUGH:
        top, z = lowest, zero
        for e in range(begin, stop):
            top = max(top, logits[e])
        if top > lowest:
            for e in range(begin, stop):
                p = exp(logits[e] - top)
                logits[e] = p
                z += p
        return z, top
    tops, sums = spread(lowest), spread(zero)
    for e in range(begin, stop, LANES):
        tops = larger(first_of(load(logits, e), stop - e, tops), tops)
    top = highest(tops)
    if top > lowest:
        for e in range(begin, stop, LANES):
            q = first_of(exponential(load(logits, e) - spread(top)), stop - e, spread(zero))
            store_first(logits, e, q, stop - e)
            sums += q
    return total(sums), top


@jit_fast
def logit_slopes(dots, shares, count, mask, f, shift, delta):  # type: ignore[no-untyped-def]
    """Replace q·k and dα of a target's edges by g = f · the gradients of their logits, and by α; returns Σ g · q·k.

    ``mask``: the bytes, the index of the first edge's byte, and whether there is a mask (a zero byte: no message).
    """
    kept, first, masked = mask
    zero = like(f, 0)
    if count < ENOUGH:
        alone = zero
        for e in range(count):
            x = dots[e]
            a = exp(x * f - shift)
            if masked and kept[first + e] == 0:
                a = zero
            dx = a * (shares[e] - delta)
            alone += dx * x
            dots[e] = dx * f
            shares[e] = a
        return alone
    sums = spread(zero)
    for e in range(0, count, LANES):
        s = load(dots, e)
        p = exponential(s * spread(f) - spread(shift))
        if masked:
            p = where_set(kept, first + e, count - e, p, spread(zero))
        ds = p * (load(shares, e) - spread(delta))
        sums += first_of(ds * s, count - e, spread(zero))
        store(dots, e, ds * spread(f))
        store(shares, e, p)
    return total(sums)


@jit_fast
def _more(sums, of_edges, edges, table):  # type: ignore[no-untyped-def]
    """``sums``, one vector of a whole row that stays in registers, and the rows of edges times their factors."""
    (factors, origin), (index, begin, stop), (rows, at, pitch) = of_edges, edges, table
    for e in range(begin, stop):
        sums += spread_like(sums, factors[e - origin]) * load_like(sums, rows, at + np.int64(index[e]) * pitch)
    return sums


@jit_fast
def onto_target(room, to, of_edges, edges, table, width):  # type: ignore[no-untyped-def]
    """Add the rows of a target's edges, times their factors, to a row. With 32 and 64 numbers the sums stay in registers."""
    if width == 4 * LANES:
        store(room, to, _more(load_four(room, to), of_edges, edges, table))
    elif width == 2 * LANES:
        store(room, to, _more(load_two(room, to), of_edges, edges, table))
    else:
        (factors, origin), (index, begin, stop), (rows, at, pitch) = of_edges, edges, table
        for e in range(begin, stop):
            factor, place = spread(factors[e - origin]), at + np.int64(index[e]) * pitch
            for c in range(0, width, LANES):
                store(room, to + c, load(room, to + c) + factor * load_first(rows, place + c, width - c))


@jit_fast
def _add_row(row, of_edges, edges, table):  # type: ignore[no-untyped-def]
    """Add ``row``, one vector, times edges' factors to the edges' rows."""
    (factors, origin), (index, begin, stop), (onto, at, pitch) = of_edges, edges, table
    for e in range(begin, stop):
        to = at + np.int64(index[e]) * pitch
        store(onto, to, load_like(row, onto, to) + spread_like(row, factors[e - origin]) * row)


@jit_fast
def onto_source(room, row, of_edges, edges, table, width):  # type: ignore[no-untyped-def]
    """Add a target's row times edges' factors to the edges' rows. A row of 32 or 64 numbers stays in registers."""
    if width == 4 * LANES:
        _add_row(load_four(room, row), of_edges, edges, table)
    elif width == 2 * LANES:
        _add_row(load_two(room, row), of_edges, edges, table)
    else:
        (factors, origin), (index, begin, stop), (onto, at, pitch) = of_edges, edges, table
        for e in range(begin, stop):
            factor, to = spread(factors[e - origin]), at + np.int64(index[e]) * pitch
            for c in range(0, width, LANES):
                found = load_first(onto, to + c, width - c) + factor * load(room, row + c)
                store_first(onto, to + c, found, width - c)
