"""The compiled loops of ``connection``, over groups of ``ROWS`` rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphmill.kernels.hyper_connections.cpu.maps import (
    ROWS,
    all_logits,
    balance,
    balanced,
    into_balance,
    into_permutations,
    mean_of_permutations,
    sigmoids,
    softmax,
)
from graphmill.kernels.runtime.compiled_math import FAST, prefetch
from graphmill.kernels.runtime.jit import jit
from graphmill.kernels.runtime.small_products import GROUP, block
from graphmill.kernels.runtime.vectors import LANES, LINE, address, load, settle, spread, spread_at, store, stream

_jit = jit(nogil=True, fastmath=FAST, error_model="numpy")
SHORT = 512
"""Terms of a sum that the matrix library does not yet divide among threads, so that products do not depend on their number:
it does from about a thousand on. So also the greatest number of rows of a block."""


@_jit
def _ahead(streams: Any, row: int, s: int) -> None:
    """Fetch stream ``s`` of a row that comes next, if there is one."""
    if row < len(streams) and s < streams.shape[1]:
        start = (row * streams.shape[1] + s) * streams.shape[2]
        for place in range(start, start + streams.shape[2], LINE // streams.itemsize):
            prefetch(streams, place)


@_jit
def _multiply(x: Any, phi: Any, product: Any, begin: int, count: int) -> None:
    """X Φ of ``count`` rows, in sums of at most ``SHORT`` terms: so much of Φ stays in the cache for all rows."""
    size, columns = phi.shape
    streams, right, out = address(x), address(phi), address(product)
    for low in range(0, size, SHORT):
        terms = min(SHORT, size - low)
        for row in range(begin, begin + count, GROUP):
            rows, at = min(GROUP, begin + count - row), row * size + low
            for c in range(0, columns, LANES):
                to, beside = row * columns + c, low * columns + c
                block(
                    (streams, at, size, 1),
                    (right, beside, columns, terms),
                    (out, to, columns, low > 0),
                    rows,
                    columns - c,
                )


@_jit
def _scales(x: Any, eps: Any, begin: int, count: int, scale: Any) -> None:
    """1/√(mean of squares + ε) of ``count`` rows."""
    one, size = x.dtype.type(1), x.dtype.type(x.shape[1] * x.shape[2])
    for row in range(begin, begin + count):
        total = x.dtype.type(0)
        for s in range(x.shape[1]):
            for c in range(x.shape[2]):
                total += x[row, s, c] * x[row, s, c]
        scale[row] = one / np.sqrt(total / size + eps)


@_jit
def read_rows(x: Any, h: Any, read: Any, first: int, last: int) -> None:
    """``read`` [row] = Σ_s h_s X_s."""
    n, end, least = h.shape[1], h.shape[1] - 1, x.shape[1] - 1
    nothing = x.dtype.type(0)
    for row in range(first, last):
        for s in range(0, n, 4):
            # Past the last stream, the last once more, without weight.
            s1, s2, s3 = min(s + 1, end), min(s + 2, end), min(s + 3, end)
            a, b = h[row, s], h[row, s1] if s1 > s else nothing
            c, d = h[row, s2] if s2 > s1 else nothing, h[row, s3] if s3 > s2 else nothing
            m0, m1, m2, m3 = min(s, least), min(s1, least), min(s2, least), min(s3, least)
            if s == 0:
                for j in range(x.shape[2]):
                    read[row, j] = (a * x[row, m0, j] + b * x[row, m1, j]) + (c * x[row, m2, j] + d * x[row, m3, j])
            else:
                for j in range(x.shape[2]):
                    read[row, j] += (a * x[row, m0, j] + b * x[row, m1, j]) + (c * x[row, m2, j] + d * x[row, m3, j])


@_jit
def _into_mixing(x: Any, into_mixed: Any, n: int, begin: int, count: int, given: Any) -> None:
    """``given`` [n · n, lanes]: the gradient of H X times Xᵀ."""
    end, least, last = n - 1, x.shape[1] - 1, into_mixed.shape[1] - 1
    for lane in range(count):
        row = begin + lane
        for i in range(0, n, 2):
            i1 = min(i + 1, end)
            h0, h1 = min(i, last), min(i1, last)
            _ahead(x, row + 1, i)
            _ahead(x, row + 1, i1)
            _ahead(into_mixed, row + 1, i)
            _ahead(into_mixed, row + 1, i1)
            for s in range(0, n, 4):
                s1, s2, s3 = min(s + 1, end), min(s + 2, end), min(s + 3, end)
                m0, m1, m2, m3 = min(s, least), min(s1, least), min(s2, least), min(s3, least)
                a0 = a1 = a2 = a3 = b0 = b1 = b2 = b3 = x.dtype.type(0)
                for j in range(x.shape[2]):
                    g0, g1 = into_mixed[row, h0, j], into_mixed[row, h1, j]
                    x0, x1, x2, x3 = x[row, m0, j], x[row, m1, j], x[row, m2, j], x[row, m3, j]
                    a0 += g0 * x0
                    a1 += g0 * x1
                    a2 += g0 * x2
                    a3 += g0 * x3
                    b0 += g1 * x0
                    b1 += g1 * x1
                    b2 += g1 * x2
                    b3 += g1 * x3
                # Past the last stream these are its own once more.
                given[i * n + s, lane], given[i1 * n + s, lane] = a0, b0
                given[i * n + s1, lane], given[i1 * n + s1, lane] = a1, b1
                given[i * n + s2, lane], given[i1 * n + s2, lane] = a2, b2
                given[i * n + s3, lane], given[i1 * n + s3, lane] = a3, b3


@_jit
def _into_gates(x: Any, into_read: Any, into_p: Any, h: Any, p: Any, begin: int, count: int, into: Any) -> None:
    """The gradients of the logits of h and p, the first 2 n lines of ``into``."""
    n, end, least = h.shape[1], h.shape[1] - 1, x.shape[1] - 1
    one, half = x.dtype.type(1), x.dtype.type(0.5)
    for lane in range(count):
        row = begin + lane
        for s in range(0, n, 4):
            s1, s2, s3 = min(s + 1, end), min(s + 2, end), min(s + 3, end)
            m0, m1, m2, m3 = min(s, least), min(s1, least), min(s2, least), min(s3, least)
            t0 = t1 = t2 = t3 = x.dtype.type(0)
            for j in range(x.shape[2]):
                g = into_read[row, j]
                t0 += g * x[row, m0, j]
                t1 += g * x[row, m1, j]
                t2 += g * x[row, m2, j]
                t3 += g * x[row, m3, j]
            into[s, lane], into[s1, lane], into[s2, lane], into[s3, lane] = t0, t1, t2, t3
        for s in range(n):
            into[s, lane] *= h[row, s] * (one - h[row, s])
            into[n + s, lane] = into_p[row, s] * p[row, s] * (one - half * p[row, s])


@_jit
def _into_product(
    into: Any, product: Any, scale: Any, alpha: Any, n: int, size: Any, rows: Any, found: Any, group: int
) -> None:
    """From ``into`` [k, lanes] of the logits to X Φ, α, the biases; ``factor``: times X, what comes by way of the scale."""
    (begin, count), (into_product, factor, sums) = rows, found
    columns = product.shape[1]
    for j in range(columns + 3):
        sums[group, j] = 0
    for lane in range(count):
        row = begin + lane
        by_scale = into.dtype.type(0)
        for part in range(3):
            total, gate = into.dtype.type(0), alpha[part] * scale[row]
            for j in range(part * n, (part + 1) * n if part < 2 else columns):
                total += into[j, lane] * product[row, j]
            for j in range(part * n, (part + 1) * n if part < 2 else columns):
                sums[group, j] += into[j, lane]
                into_product[row, j] = into[j, lane] * gate
            sums[group, columns + part] += total * scale[row]
            by_scale += total * alpha[part]
        # The scale is (mean of squares + ε)^(-1/2).
        factor[row] = -by_scale * scale[row] * scale[row] * scale[row] / size


@_jit
def enter(arguments: Any, first: int, last: int) -> None:
    """The maps, and what is read."""
    x, phi, read, product, scale, h, p, mixing, alpha, bias, orders, iterations, eps, start, stop = arguments
    n, two = h.shape[1], x.dtype.type(2)
    logits, mixed = np.empty((len(bias), ROWS), x.dtype), np.empty((n * n, ROWS), x.dtype)
    us, vs = np.empty((iterations, n, ROWS), x.dtype), np.empty((iterations + 1, n, ROWS), x.dtype)
    top = np.empty(ROWS, x.dtype)
    for group in range(first, last):
        begin = start + group * ROWS
        count = min(ROWS, stop - begin)
        # The squares first: they read the rows one after the other, as memory gives them fastest.
        _scales(x, eps, begin, count, scale)
        _multiply(x, phi, product, begin, count)
        all_logits(product, scale, alpha, bias, n, begin, count, logits)
        sigmoids(logits, 2 * n)
        if iterations > 0:
            balance(logits, n, us, vs, top)
            balanced(logits, n, us, vs, mixed)
        else:
            mean_of_permutations(logits, n, orders, top, mixed)
        for lane in range(count):
            for s in range(n):
                h[begin + lane, s] = logits[s, lane]
                p[begin + lane, s] = two * logits[n + s, lane]
                for i in range(n):
                    mixing[begin + lane, i, s] = mixed[i * n + s, lane]
        read_rows(x, h, read, begin, begin + count)


@_jit
def into_maps(arguments: Any, first: int, last: int) -> None:
    """Gradients of X Φ, of α and of the biases, and what the streams get by way of the scale."""
    (
        x, into_mixed, into_read, into_p, product, scale, h, p, mixing, into_product, factor, sums, alpha, bias, orders,
        iterations, start, stop
    ) = arguments  # fmt: skip
    n, size = h.shape[1], x.dtype.type(x.shape[1] * x.shape[2])
    logits, into = np.empty((len(bias), ROWS), x.dtype), np.empty((len(bias), ROWS), x.dtype)
    given, top = np.empty((n * n, ROWS), x.dtype), np.empty(ROWS, x.dtype)
    us, vs = np.empty((iterations, n, ROWS), x.dtype), np.empty((iterations + 1, n, ROWS), x.dtype)
    into_u, into_v = np.empty((n, ROWS), x.dtype), np.empty((n, ROWS), x.dtype)
    for group in range(first, last):
        begin = start + group * ROWS
        count = min(ROWS, stop - begin)
        if count < ROWS:
            # Lanes without a row: whatever stands there must be a number.
            given[:] = 0
        _into_mixing(x, into_mixed, n, begin, count, given)
        _into_gates(x, into_read, into_p, h, p, begin, count, into)
        all_logits(product, scale, alpha, bias, n, begin, count, logits)
        if iterations > 0:
            balance(logits, n, us, vs, top)
            into_balance(logits, n, us, vs, given, into, into_u, into_v)
        else:
            softmax(logits, 2 * n, top)
            into_permutations(logits, n, orders, given, mixing, begin, count, into)
        _into_product(into, product, scale, alpha, n, size, (begin, count), (into_product, factor, sums), begin // ROWS)


@_jit
def _stream_into(
    x: Any, into_mixed: Any, into_read: Any, h: Any, mixing: Any, factor: Any, beside: Any, into: Any, rows: Any
) -> None:
    start, first, last = rows
    held, width, n, least = x.shape[1], x.shape[2], mixing.shape[1], into_mixed.shape[1] - 1
    streams, above, read, maps = address(x), address(into_mixed), address(into_read), address(mixing)
    known, to = address(beside), address(into)
    nothing = spread(x.dtype.type(0))
    for row in range(first, last):
        scale, first_above = spread(factor[row]), row * (least + 1)
        for s in range(held):
            weight, place = spread(h[row, s]), (row * held + s) * width
            own, known_at = row * n * held + s, ((row - start) * held + s) * width
            for i in range(0, n, 4):
                # Past the last stream, the last once more, without weight; sums of four at a time stay in the cache.
                i1, i2, i3 = min(i + 1, n - 1), min(i + 2, n - 1), min(i + 3, n - 1)
                a, b = spread_at(maps, own + i * held), spread_at(maps, own + i1 * held) if i1 > i else nothing
                d = spread_at(maps, own + i2 * held) if i2 > i1 else nothing
                e = spread_at(maps, own + i3 * held) if i3 > i2 else nothing
                g0, g1 = (first_above + min(i, least)) * width, (first_above + min(i1, least)) * width
                g2, g3 = (first_above + min(i2, least)) * width, (first_above + min(i3, least)) * width
                for c in range(0, width, LANES):
                    found = load(known, known_at + c) + (a * load(above, g0 + c) + b * load(above, g1 + c))
                    found += d * load(above, g2 + c) + e * load(above, g3 + c)
                    if i + 4 < n:
                        store(known, known_at + c, found)
                    else:
                        found += weight * load(read, row * width + c) + scale * load(streams, place + c)
                        stream(to, place + c, found)
    settle()


@_jit
def into_streams(arguments: Any, first: int, last: int) -> None:
    """``into``, the gradient by way of the product, += h ⊗ that of what was read + Hᵀ that of H X + that of the scale.

    Where ``streaming``, what is added to stands ``beside``, from row 0 on.
    """
    x, into_mixed, into_read, h, mixing, factor, beside, into, streaming, start, stop = arguments
    if streaming:
        _stream_into(
            x,
            into_mixed,
            into_read,
            h,
            mixing,
            factor,
            beside,
            into,
            (start, start + first * ROWS, min(start + last * ROWS, stop)),
        )
        return
    n, end, least = mixing.shape[1], mixing.shape[1] - 1, into_mixed.shape[1] - 1
    nothing = x.dtype.type(0)
    for row in range(start + first * ROWS, min(start + last * ROWS, stop)):
        scale = factor[row]
        for s in range(x.shape[1]):
            weight = h[row, s]
            for i in range(0, n, 4):
                i1, i2, i3 = min(i + 1, end), min(i + 2, end), min(i + 3, end)
                a, b = mixing[row, i, s], mixing[row, i1, s] if i1 > i else nothing
                c, d = mixing[row, i2, s] if i2 > i1 else nothing, mixing[row, i3, s] if i3 > i2 else nothing
                m0, m1, m2, m3 = min(i, least), min(i1, least), min(i2, least), min(i3, least)
                if i == 0:
                    for j in range(x.shape[2]):
                        into[row, s, j] += (weight * into_read[row, j] + scale * x[row, s, j]) + (
                            (a * into_mixed[row, m0, j] + b * into_mixed[row, m1, j])
                            + (c * into_mixed[row, m2, j] + d * into_mixed[row, m3, j])
                        )
                else:
                    for j in range(x.shape[2]):
                        into[row, s, j] += (a * into_mixed[row, m0, j] + b * into_mixed[row, m1, j]) + (
                            c * into_mixed[row, m2, j] + d * into_mixed[row, m3, j]
                        )


@_jit
def _stream_out(x: Any, mixing: Any, p: Any, update: Any, out: Any, first: int, last: int) -> None:
    n, held, width = p.shape[1], x.shape[1], x.shape[2]
    streams, maps, new, to = address(x), address(mixing), address(update), address(out)
    for row in range(first, last):
        for i in range(n):
            _ahead(x, row + 1, i)
            weight, own = spread(p[row, i]), (row * n + i) * n
            for c in range(0, width, LANES):
                found = weight * load(new, row * width + c)
                for s in range(n):
                    found += spread_at(maps, own + s) * load(streams, (row * held + min(s, held - 1)) * width + c)
                stream(to, (row * n + i) * width + c, found)
    settle()


@_jit
def leave(x: Any, mixing: Any, p: Any, update: Any, out: Any, streaming: bool, first: int, last: int) -> None:
    """``out`` = H X + p ⊗ y."""
    if streaming:
        _stream_out(x, mixing, p, update, out, first, last)
        return
    n, end, least = p.shape[1], p.shape[1] - 1, x.shape[1] - 1
    nothing = x.dtype.type(0)
    for row in range(first, last):
        for i in range(n):
            _ahead(x, row + 1, i)
            _ahead(out, row + 1, i)
            weight = p[row, i]
            for s in range(0, n, 4):
                s1, s2, s3 = min(s + 1, end), min(s + 2, end), min(s + 3, end)
                a, b = mixing[row, i, s], mixing[row, i, s1] if s1 > s else nothing
                c, d = mixing[row, i, s2] if s2 > s1 else nothing, mixing[row, i, s3] if s3 > s2 else nothing
                m0, m1, m2, m3 = min(s, least), min(s1, least), min(s2, least), min(s3, least)
                if s == 0:
                    for j in range(x.shape[2]):
                        out[row, i, j] = weight * update[row, j] + (
                            (a * x[row, m0, j] + b * x[row, m1, j]) + (c * x[row, m2, j] + d * x[row, m3, j])
                        )
                else:
                    for j in range(x.shape[2]):
                        out[row, i, j] += (a * x[row, m0, j] + b * x[row, m1, j]) + (
                            c * x[row, m2, j] + d * x[row, m3, j]
                        )


@_jit
def leave_gradients(p: Any, update: Any, gradient: Any, into_p: Any, into_update: Any, first: int, last: int) -> None:
    """Gradients of p and of the update."""
    n, end, least = p.shape[1], p.shape[1] - 1, gradient.shape[1] - 1
    nothing = p.dtype.type(0)
    for row in range(first, last):
        for s in range(0, n, 4):
            s1, s2, s3 = min(s + 1, end), min(s + 2, end), min(s + 3, end)
            a, b = p[row, s], p[row, s1] if s1 > s else nothing
            c, d = p[row, s2] if s2 > s1 else nothing, p[row, s3] if s3 > s2 else nothing
            t0 = t1 = t2 = t3 = nothing
            m0, m1, m2, m3 = min(s, least), min(s1, least), min(s2, least), min(s3, least)
            for i in range(s, s + 4):
                _ahead(gradient, row + 1, i)
            # Sums in a loop of their own: one that stores as well goes by vectors or not, as its arrays lie in memory.
            for j in range(update.shape[1]):
                t0 += update[row, j] * gradient[row, m0, j]
                t1 += update[row, j] * gradient[row, m1, j]
                t2 += update[row, j] * gradient[row, m2, j]
                t3 += update[row, j] * gradient[row, m3, j]
            if s > 0:
                for j in range(update.shape[1]):
                    into_update[row, j] += (a * gradient[row, m0, j] + b * gradient[row, m1, j]) + (
                        c * gradient[row, m2, j] + d * gradient[row, m3, j]
                    )
            else:
                for j in range(update.shape[1]):
                    into_update[row, j] = (a * gradient[row, m0, j] + b * gradient[row, m1, j]) + (
                        c * gradient[row, m2, j] + d * gradient[row, m3, j]
                    )
            into_p[row, s], into_p[row, s1], into_p[row, s2], into_p[row, s3] = t0, t1, t2, t3
