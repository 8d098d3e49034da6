"""Building blocks of a relation's pass, compiled: gathering and scattering rows, sums over a target's edges, softmax.

``forward`` and ``backward`` combine them. Tables are addresses. Loops over widths known at compile time have no remainders.
"""

from __future__ import annotations

import numpy as np

from graphmill.kernels.products.cpu import SIX, whole_blocks
from graphmill.kernels.runtime.compiled_math import FAST, exp, prefetch
from graphmill.kernels.runtime.jit import jit
from graphmill.kernels.runtime.vector_math import (
    exponential,
    first_of,
    highest,
    larger,
    total,
    total_of_each,
    where_set,
)
from graphmill.kernels.runtime.vectors import LANES, like, load, load_first, padded, spread, store, store_first

_jit = jit(nogil=True, fastmath=FAST, error_model="numpy")
TOGETHER = 8 * SIX
"""Number of rows in a block, of targets and of sources that are multiplied."""
AHEAD = 8
"""Number of edges by which source rows are prefetched, because their order is random."""
ENOUGH = LANES // 2
"""With at least this many edges left, sixteen edges are multiplied at once, even if some of them are unused."""


@_jit
def fetch(table, first, width):  # type: ignore[no-untyped-def]
    """Prefetch a row's cache lines."""
    for place in range(first, first + width, LANES):
        prefetch(table, place)


@_jit
def gather(rows, nodes, start, size, width, into):  # type: ignore[no-untyped-def]
    """Copy the rows of nodes ``start`` to ``start + size`` into a contiguous buffer, and prefetch the next ones.

    ``rows``: table, row stride, first column. ``into``: buffer, offset, row stride.
    """
    (table, pitch, column), (room, to, line) = rows, into
    for i in range(start + size, min(start + size + size, len(nodes))):
        fetch(table, nodes[i] * pitch + column, width)
    for i in range(size):
        at, place = nodes[start + i] * pitch + column, to + i * line
        for c in range(0, width, LANES):
            store(room, place + c, load_first(table, at + c, width - c))


@_jit
def scatter(rows, nodes, start, size, width, given):  # type: ignore[no-untyped-def]
    """Add rows of a contiguous buffer to the rows of nodes ``start`` to ``start + size``. See :func:`gather`."""
    (table, pitch, column), (room, at, line) = rows, given
    for i in range(size):
        to, place = nodes[start + i] * pitch + column, at + i * line
        for c in range(0, width, LANES):
            found = load_first(table, to + c, width - c) + load(room, place + c)
            store_first(table, to + c, found, width - c)


@_jit
def matrix(table, at, width, turned, room):  # type: ignore[no-untyped-def]
    """Copy a matrix [D, D], or its transpose, with rows zero-padded to whole vectors."""
    line = padded(width)
    for i in range(width):
        for j in range(width):
            room[i * line + j] = table[at + (j * width + i if turned else i * width + j)]
        for j in range(width, line):
            room[i * line + j] = 0


@_jit
def times(left, at, matrix, of_matrix, out, to, rows, width, line):  # type: ignore[no-untyped-def]
    """out[to + r · line + c] = Σ_t left[at + r · line + t] · matrix[of_matrix + t · line + c]: rows times a matrix."""
    whole_blocks((left, at, line, 1), (matrix, of_matrix, line, width), (out, to, line, False), rows, width)


@_jit
def add_gradient(left, at, right, beside, out, to, rows, width, line):  # type: ignore[no-untyped-def]
    """out[to + i · line + c] += Σ_r left[at + r · line + i] · right[beside + r · line + c]: the matrix's gradient."""
    whole_blocks((left, at, 1, line), (right, beside, line, rows), (out, to, line, True), width, width)


@_jit
def transformed(rows, nodes, width, maps, room, out):  # type: ignore[no-untyped-def]
    """Rows of all nodes (:func:`gather`) times a matrix, in a contiguous buffer."""
    line = padded(width)
    for start in range(0, len(nodes), TOGETHER):
        size = min(TOGETHER, len(nodes) - start)
        gather(rows, nodes, start, size, width, (room, 0, line))
        times(room, 0, maps, 0, out, start * line, size, width, line)


@_jit
def most_edges(indptr, together):  # type: ignore[no-untyped-def]
    """Largest number of edges of ``together`` consecutive targets."""
    most, last = 0, len(indptr) - 1
    for start in range(0, last, together):
        most = max(most, indptr[min(start + together, last)] - indptr[start])
    return most


@_jit
def end_of(source, begin, end, until):  # type: ignore[no-untyped-def]
    """The first edge of one target whose source is at least ``until``."""
    while begin < end and source[begin] < until:
        begin += 1
    return begin


@_jit
def _products(left, i, right, j, width):  # type: ignore[no-untyped-def]
    """Sixteen partial sums of a dot product of ``width`` numbers; ``left`` is zero-padded to whole vectors."""
    sums = load(left, i) * load_first(right, j, width)
    for c in range(LANES, width, LANES):
        sums += load(left, i + c) * load_first(right, j + c, width - c)
    return sums


@_jit
def dot(left, i, right, j, width):  # type: ignore[no-untyped-def]
    """Dot product of ``width`` numbers; ``left`` is zero-padded to whole vectors."""
    return total(_products(left, i, right, j, width))


@_jit
def _at(index, e, last, to, pitch):  # type: ignore[no-untyped-def]
    return to + np.int64(index[min(e, last)]) * pitch


@_jit
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


@_jit
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


@_jit
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


@_jit
def _add_times(room, to, factor, table, at, width):  # type: ignore[no-untyped-def]
    """Add to a row that is padded to whole vectors."""
    factors = spread(factor)
    for c in range(0, width, LANES):
        store(room, to + c, load(room, to + c) + factors * load_first(table, at + c, width - c))


@_jit
def _add_times_first(table, to, factor, room, at, width):  # type: ignore[no-untyped-def]
    """Add from a row that is padded to whole vectors."""
    factors = spread(factor)
    for c in range(0, width, LANES):
        found = load_first(table, to + c, width - c) + factors * load(room, at + c)
        store_first(table, to + c, found, width - c)


@_jit
def _two(table, at):  # type: ignore[no-untyped-def]
    return load(table, at), load(table, at + LANES)


@_jit
def _four(table, at):  # type: ignore[no-untyped-def]
    return load(table, at), load(table, at + LANES), load(table, at + 2 * LANES), load(table, at + 3 * LANES)


@_jit
def _two_more(row, factors, other):  # type: ignore[no-untyped-def]
    return row[0] + factors * other[0], row[1] + factors * other[1]


@_jit
def _four_more(row, factors, other):  # type: ignore[no-untyped-def]
    return (
        row[0] + factors * other[0],
        row[1] + factors * other[1],
        row[2] + factors * other[2],
        row[3] + factors * other[3],
    )


@_jit
def _put_two(table, at, row):  # type: ignore[no-untyped-def]
    store(table, at, row[0])
    store(table, at + LANES, row[1])


@_jit
def _put_four(table, at, row):  # type: ignore[no-untyped-def]
    store(table, at, row[0])
    store(table, at + LANES, row[1])
    store(table, at + 2 * LANES, row[2])
    store(table, at + 3 * LANES, row[3])


@_jit
def onto_target(room, to, of_edges, edges, table, width):  # type: ignore[no-untyped-def]
    """Add the rows of a target's edges, times their factors, to a row. With 32 and 64 numbers the sums stay in registers."""
    (factors, origin), (index, begin, stop), (rows, at, pitch) = of_edges, edges, table
    if width == 4 * LANES:
        four = _four(room, to)
        for e in range(begin, stop):
            four = _four_more(four, spread(factors[e - origin]), _four(rows, at + np.int64(index[e]) * pitch))
        _put_four(room, to, four)
    elif width == 2 * LANES:
        two = _two(room, to)
        for e in range(begin, stop):
            two = _two_more(two, spread(factors[e - origin]), _two(rows, at + np.int64(index[e]) * pitch))
        _put_two(room, to, two)
    else:
        for e in range(begin, stop):
            _add_times(room, to, factors[e - origin], rows, at + np.int64(index[e]) * pitch, width)


@_jit
def onto_source(room, row, of_edges, edges, table, width):  # type: ignore[no-untyped-def]
    """Add a target's row times edges' factors to the edges' rows. A row of 32 or 64 numbers stays in registers."""
    (factors, origin), (index, begin, stop), (onto, at, pitch) = of_edges, edges, table
    if width == 4 * LANES:
        four = _four(room, row)
        for e in range(begin, stop):
            to = at + np.int64(index[e]) * pitch
            _put_four(onto, to, _four_more(_four(onto, to), spread(factors[e - origin]), four))
    elif width == 2 * LANES:
        two = _two(room, row)
        for e in range(begin, stop):
            to = at + np.int64(index[e]) * pitch
            _put_two(onto, to, _two_more(_two(onto, to), spread(factors[e - origin]), two))
    else:
        for e in range(begin, stop):
            _add_times_first(onto, at + np.int64(index[e]) * pitch, factors[e - origin], room, row, width)
