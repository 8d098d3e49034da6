"""``hyper_connections`` for the CPU, compiled, in blocks of rows; two products of backward are torch's.

A block's streams fit the second-level cache, so that all that is done with them costs one reading of the memory. A row's
maps are a few numbers, so they are computed for ``ROWS`` rows side by side: every loop runs over the rows, and vectorises.
Loops over columns write to one place each; LLVM vectorises only those (it cannot know that arrays do not overlap, and would
need too many tests).

All arrays are contiguous and of one dtype, fp32 or float64. R rows, n streams of C numbers, k = 2 n + m maps. Streams, and
the gradient of H X, may be [R, 1, C], one for all; ``least`` is the number of its last.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import permutations
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

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
from graphmill.kernels.products import add_product_, product
from graphmill.kernels.runtime.compiled_math import FAST, prefetch
from graphmill.kernels.runtime.jit import jit
from graphmill.kernels.runtime.small_products import GROUP, block
from graphmill.kernels.runtime.team import over_ranges
from graphmill.kernels.runtime.vectors import LANES, LINE, address, load, settle, spread, spread_at, store, stream

_jit = jit(nogil=True, fastmath=FAST, error_model="numpy")
_LARGE = 1 << 24
"""Bytes of streams from which on they are written past the caches: written lines are otherwise read before."""
_BLOCK = 1 << 20
"""Bytes of the streams of one block."""
_SHORT = 512
"""Terms of a sum that the matrix library does not yet divide among threads, so that products do not depend on their number:
it does from about a thousand on. So also the greatest number of rows of a block."""


class Kept(NamedTuple):
    """What backward needs of forward beside its arguments: X Φ [R, k], 1/RMS [R], h and p [R, n], H [R, n, n]."""

    product: Tensor
    scale: Tensor
    h: Tensor
    p: Tensor
    mixing: Tensor


def enter(
    streams: Tensor, phi: Tensor, alpha: Tensor, bias: Tensor, iterations: int, eps: float
) -> tuple[Tensor, Kept]:
    """Σ_s h_s X_s [R, C], and the maps. ``bias`` [k] is that of all maps; no ``iterations``: a mean of permutations."""
    streams, phi = streams.detach(), phi.detach()
    (rows, held, width), n = streams.shape, phi.shape[0] // streams.shape[2]
    phi = _folded(phi, held, n)
    read = streams.new_empty(rows, width)
    product, scale = streams.new_empty(rows, phi.shape[1]), streams.new_empty(rows)
    kept = Kept(product, scale, streams.new_empty(rows, n), streams.new_empty(rows, n), streams.new_empty(rows, n, n))
    maps = (*_parameters(alpha, bias, n, iterations), streams.numpy().dtype.type(eps))
    arrays = tuple(t.numpy() for t in (streams, phi.contiguous(), read, *kept))
    _over(_enter, (*arrays, *maps, 0, rows), streams)
    return read, kept


def enter_gradients(
    streams: Tensor,
    phi: Tensor,
    alpha: Tensor,
    bias: Tensor,
    iterations: int,
    kept: Kept,
    into_read: Tensor,
    into_p: Tensor,
    into_mixed: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gradients of the streams, Φ, α and the bias, of those of what was read [R, C], of p [R, n] and of H X [R, n, C]."""
    streams, phi = streams.detach(), phi.detach()
    (rows, held, width), n, columns = streams.shape, kept.p.shape[1], phi.shape[1]
    phi = _folded(phi, held, n)
    into_streams, into_phi, turned = torch.empty_like(streams), torch.zeros_like(phi), phi.T.contiguous()
    into_product, factor = streams.new_empty(rows, columns), streams.new_empty(rows)
    sums = streams.new_empty(-(-rows // ROWS), columns + 3)
    maps = _parameters(alpha, bias, n, iterations)
    given = tuple(t.detach().numpy() for t in (streams, into_mixed, into_read))
    known = tuple(t.detach().numpy() for t in (into_p, *kept, into_product, factor, sums))
    # What a stream that stands for all is given, all are.
    h, mixing = (kept.h, kept.mixing) if held == n else (kept.h.sum(1, True), kept.mixing.sum(2, True))
    flat, into_flat = streams.view(rows, held * width), into_streams.view(rows, held * width)
    streaming = _streaming(into_streams)
    # What comes by way of the product is put where it stays in the cache, and the sum goes to memory.
    beside = torch.empty_like(flat[: next(_blocks(streams), (0, 0))[1]]) if streaming else into_flat
    last = tuple(t.numpy() for t in (h, mixing, factor, beside, into_streams))
    for start, stop in _blocks(streams):
        _over(_into_maps, (*given, *known, *maps, start, stop), streams)
        part = into_product[start:stop]
        add_product_(into_phi, flat[start:stop].T, part)
        product(part, turned, out=beside[: stop - start] if streaming else into_flat[start:stop])
        _over(_into_streams, (*given, *last, streaming, start, stop), streams)
    total = sums.sum(0)
    return into_streams, into_phi.repeat(n // held, 1), total[columns:], total[:columns]


def leave(streams: Tensor, mixing: Tensor, p: Tensor, update: Tensor) -> Tensor:
    """[R, n, C]: H X + p ⊗ y."""
    out = streams.new_empty(*p.shape, streams.shape[2])
    arrays = tuple(t.detach().numpy() for t in (streams, mixing, p, update, out))
    over_ranges(_leave, (*arrays, _streaming(out)), len(streams), out.numel())
    return out


def _streaming(out: Tensor) -> bool:
    """Whether rows of ``out`` are written past the caches: there are many, and each begins and ends with a cache line."""
    whole = out.shape[2] % LANES == 0 and out.data_ptr() % LINE == 0
    return whole and out.numel() * out.element_size() >= _LARGE


def leave_gradients(p: Tensor, update: Tensor, gradient: Tensor) -> tuple[Tensor, Tensor]:
    """Gradients of p and of the update, of ``gradient`` [R, n, C]."""
    into_p, into_update = torch.empty_like(p), torch.empty_like(update)
    arrays = tuple(t.detach().numpy() for t in (p, update, gradient, into_p, into_update))
    over_ranges(_leave_gradients, arrays, len(gradient), gradient.numel())
    return into_p, into_update


def _folded(phi: Tensor, held: int, n: int) -> Tensor:
    """Φ for as many streams as are held: one that stands for all is multiplied by the sum."""
    return phi if held == n else phi.view(n, -1, phi.shape[1]).sum(0)


def add_streams(streams: Tensor, factor: float) -> Tensor:
    """[R, C]: the sum over streams times ``factor``."""
    out = streams.new_empty(len(streams), streams.shape[2])
    weights = streams.new_full(streams.shape[:2], factor)
    arrays = tuple(t.detach().numpy() for t in (streams, weights, out))
    over_ranges(_read, arrays, len(streams), streams.numel())
    return out


def _blocks(streams: Tensor) -> Iterator[tuple[int, int]]:
    row = max(streams.shape[1] * streams.shape[2] * streams.element_size(), 1)
    size = min(max(_BLOCK // row // ROWS * ROWS, ROWS), _SHORT)
    for start in range(0, len(streams), size):
        yield start, min(start + size, len(streams))


def _over(driver: Any, arguments: tuple[Any, ...], streams: Tensor) -> None:
    """A kernel whose arguments end with the rows' bounds, over the groups of ``ROWS`` rows within."""
    count = arguments[-1] - arguments[-2]
    over_ranges(driver, arguments, -(-count // ROWS), count * streams.shape[1] * streams.shape[2])


def _parameters(alpha: Tensor, bias: Tensor, n: int, iterations: int) -> tuple[Any, ...]:
    return alpha.detach().numpy(), bias.detach().numpy(), _orders(n) if iterations == 0 else _orders(0), iterations


@cache
def _orders(n: int) -> Any:
    """[n!, n]: where each row of a permutation matrix has its one, in ``permutation_matrices``' order."""
    return np.array(list(permutations(range(n))) if n else [], np.int64).reshape(-1, max(n, 1))


@_jit
def _ahead(streams: Any, row: int, s: int) -> None:
    """Fetch stream ``s`` of a row that comes next, if there is one."""
    if row < len(streams) and s < streams.shape[1]:
        start = (row * streams.shape[1] + s) * streams.shape[2]
        for place in range(start, start + streams.shape[2], LINE // streams.itemsize):
            prefetch(streams, place)


@_jit
def _multiply(x: Any, phi: Any, product: Any, begin: int, count: int) -> None:
    """X Φ of ``count`` rows, in sums of at most ``_SHORT`` terms: so much of Φ stays in the cache for all rows."""
    size, columns = phi.shape
    streams, right, out = address(x), address(phi), address(product)
    for low in range(0, size, _SHORT):
        terms = min(_SHORT, size - low)
        for row in range(begin, begin + count, GROUP):
            rows, at = min(GROUP, begin + count - row), row * size + low
            for c in range(0, columns, LANES):
                to, beside = row * columns + c, low * columns + c
                block(streams, at, size, 1, right, beside, columns, terms, columns - c, low > 0, out, to, columns, rows)


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
def _read(x: Any, h: Any, read: Any, first: int, last: int) -> None:
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
    into: Any, product: Any, scale: Any, alpha: Any, n: int, size: Any, begin: int, count: int, into_product: Any,
    factor: Any, sums: Any, group: int,
) -> None:  # fmt: skip
    """From ``into`` [k, lanes] of the logits to X Φ, α, the biases; ``factor``: times X, what comes by way of the scale."""
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
def _enter(
    x: Any, phi: Any, read: Any, product: Any, scale: Any, h: Any, p: Any, mixing: Any, alpha: Any, bias: Any,
    orders: Any, iterations: int, eps: Any, start: int, stop: int, first: int, last: int,
) -> None:  # fmt: skip
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
        _read(x, h, read, begin, begin + count)


@_jit
def _into_maps(
    x: Any, into_mixed: Any, into_read: Any, into_p: Any, product: Any, scale: Any, h: Any, p: Any, mixing: Any,
    into_product: Any, factor: Any, sums: Any, alpha: Any, bias: Any, orders: Any, iterations: int, start: int, stop: int,
    first: int, last: int,
) -> None:  # fmt: skip
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
        _into_product(
            into, product, scale, alpha, n, size, begin, count, into_product, factor, sums, begin // ROWS
        )  # fmt: skip


@_jit
def _stream_into(
    x: Any, into_mixed: Any, into_read: Any, h: Any, mixing: Any, factor: Any, beside: Any, into: Any, start: int,
    first: int, last: int,
) -> None:  # fmt: skip
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
def _into_streams(
    x: Any, into_mixed: Any, into_read: Any, h: Any, mixing: Any, factor: Any, beside: Any, into: Any, streaming: bool,
    start: int, stop: int, first: int, last: int,
) -> None:  # fmt: skip
    """``into``, the gradient by way of the product, += h ⊗ that of what was read + Hᵀ that of H X + that of the scale.

    Where ``streaming``, what is added to stands ``beside``, from row 0 on.
    """
    if streaming:
        _stream_into(
            x, into_mixed, into_read, h, mixing, factor, beside, into, start, start + first * ROWS,
            min(start + last * ROWS, stop),
        )  # fmt: skip
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
def _leave(x: Any, mixing: Any, p: Any, update: Any, out: Any, streaming: bool, first: int, last: int) -> None:
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
def _leave_gradients(p: Any, update: Any, gradient: Any, into_p: Any, into_update: Any, first: int, last: int) -> None:
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
