"""A block of a matrix product inside compiled code. The results stay in registers until they are complete."""

from __future__ import annotations

from typing import Any

from graphmill.kernels.runtime.compiled_math import FAST
from graphmill.kernels.runtime.jit import jit
from graphmill.kernels.runtime.vectors import load_first, spread_at, store_first

_jit = jit(nogil=True, fastmath=FAST, error_model="numpy")
GROUP = 8
"""Rows of a block."""


@_jit
def block(left: Any, right: Any, out: Any, rows: int, count: int) -> None:
    """At most eight rows of ``left`` times ``count`` (at most 16) columns of ``right``. All are addresses.

    ``left``: address, at, row, step; ``right``: address, beside, stride, terms; ``out``: address, to, pitch, onto.

    out[to + r · pitch + c] = Σ_t left[at + r · row + t · step] · right[beside + t · stride + c]; with ``onto``, add to
    ``out``. Rows after the last repeat the last one.
    """
    (a, at, row, step), (b, beside, stride, terms), (y, to, pitch, onto) = left, right, out
    last = rows - 1
    r1, r2, r3, r4, r5 = min(1, last), min(2, last), min(3, last), min(4, last), min(5, last)
    r6, r7 = min(6, last), min(7, last)
    p0, p1, p2, p3 = at, at + r1 * row, at + r2 * row, at + r3 * row
    p4, p5, p6, p7 = at + r4 * row, at + r5 * row, at + r6 * row, at + r7 * row
    a0 = load_first(y, to, 0)
    a1, a2, a3, a4, a5, a6, a7 = a0, a0, a0, a0, a0, a0, a0
    if onto:
        a0, a1 = load_first(y, to, count), load_first(y, to + r1 * pitch, count)
        a2, a3 = load_first(y, to + r2 * pitch, count), load_first(y, to + r3 * pitch, count)
        a4, a5 = load_first(y, to + r4 * pitch, count), load_first(y, to + r5 * pitch, count)
        a6, a7 = load_first(y, to + r6 * pitch, count), load_first(y, to + r7 * pitch, count)
    for term in range(terms):
        x = load_first(b, beside + term * stride, count)
        k = term * step
        a0 += spread_at(a, p0 + k) * x
        a1 += spread_at(a, p1 + k) * x
        a2 += spread_at(a, p2 + k) * x
        a3 += spread_at(a, p3 + k) * x
        a4 += spread_at(a, p4 + k) * x
        a5 += spread_at(a, p5 + k) * x
        a6 += spread_at(a, p6 + k) * x
        a7 += spread_at(a, p7 + k) * x
    store_first(y, to, a0, count)
    if rows > 1:
        store_first(y, to + pitch, a1, count)
    if rows > 2:
        store_first(y, to + 2 * pitch, a2, count)
    if rows > 3:
        store_first(y, to + 3 * pitch, a3, count)
    if rows > 4:
        store_first(y, to + 4 * pitch, a4, count)
    if rows > 5:
        store_first(y, to + 5 * pitch, a5, count)
    if rows > 6:
        store_first(y, to + 6 * pitch, a6, count)
    if rows > 7:
        store_first(y, to + 7 * pitch, a7, count)
