"""The maps of ``hyper_connections`` for the CPU, compiled: gates by sigmoid, mixing by permutations or Sinkhorn's iteration.

A row's maps are a few numbers, so they are computed for :data:`ROWS` rows side by side: every loop runs over the rows, and
vectorises. Arrays are [k, rows] or [n · n, rows], k = 2 n + m; those by row are ``connection``'s.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from graphmill.kernels.runtime.compiled_math import FAST, exp
from graphmill.kernels.runtime.jit import jit

_jit = jit(nogil=True, fastmath=FAST, error_model="numpy")
ROWS = 64
"""Rows whose maps are computed together, and whose share of the gradients of α and the biases is one sum: so these do not
depend on the number of threads."""


@_jit
def all_logits(product: Any, scale: Any, alpha: Any, bias: Any, n: int, begin: int, count: int, logits: Any) -> None:
    """[k, lanes]: α u + b; u is zero in lanes without a row."""
    for lane in range(count):
        factor = scale[begin + lane]
        for j in range(len(bias)):
            logits[j, lane] = product[begin + lane, j] * factor
    for j in range(len(bias)):
        gate, shift = alpha[min(j // n, 2)], bias[j]
        for lane in range(count, ROWS):
            logits[j, lane] = 0
        for lane in range(ROWS):
            logits[j, lane] = gate * logits[j, lane] + shift


@_jit
def sigmoids(logits: Any, count: int) -> None:
    """Of the first ``count`` lines, in place."""
    one = logits.dtype.type(1)
    for j in range(count):
        for lane in range(ROWS):
            e = exp(-abs(logits[j, lane]))
            logits[j, lane] = (one if logits[j, lane] > 0 else e) / (one + e)


@_jit
def exponentials(logits: Any, first: int, last: int, top: Any) -> None:
    """exp(x - maximum) of the lines from ``first`` to ``last``, in place."""
    for lane in range(ROWS):
        top[lane] = logits[first, lane]
    for j in range(first + 1, last):
        for lane in range(ROWS):
            top[lane] = max(top[lane], logits[j, lane])
    for j in range(first, last):
        for lane in range(ROWS):
            logits[j, lane] = exp(logits[j, lane] - top[lane])


@_jit
def softmax(logits: Any, first: int, top: Any) -> None:
    """Over the lines from ``first`` on, in place."""
    one = logits.dtype.type(1)
    exponentials(logits, first, len(logits), top)
    top[:] = 0
    for j in range(first, len(logits)):
        for lane in range(ROWS):
            top[lane] += logits[j, lane]
    for lane in range(ROWS):
        top[lane] = one / top[lane]
    for j in range(first, len(logits)):
        for lane in range(ROWS):
            logits[j, lane] *= top[lane]


@_jit
def mean_of_permutations(logits: Any, n: int, orders: Any, top: Any, mixed: Any) -> None:
    """``permutation_mixture`` of the lines from 2 n on, which become the shares: ``mixed`` [n · n, lanes]."""
    softmax(logits, 2 * n, top)
    mixed[:] = 0
    for k in range(len(orders)):
        for i in range(n):
            place = i * n + orders[k, i]
            for lane in range(ROWS):
                mixed[place, lane] += logits[2 * n + k, lane]


@_jit
def into_permutations(
    shares: Any, n: int, orders: Any, given: Any, mixing: Any, begin: int, count: int, into: Any
) -> None:
    """Gradient of the logits, from line 2 n of ``into`` on, of ``given`` [n · n, lanes] of H."""
    inner = np.zeros(ROWS, given.dtype)
    for lane in range(count):
        for i in range(n):
            for s in range(n):
                inner[lane] += given[i * n + s, lane] * mixing[begin + lane, i, s]
    for k in range(len(orders)):
        target = 2 * n + k
        for lane in range(ROWS):
            into[target, lane] = -inner[lane]
        for i in range(n):
            place = i * n + orders[k, i]
            for lane in range(ROWS):
                into[target, lane] += given[place, lane]
        for lane in range(ROWS):
            into[target, lane] *= shares[target, lane]


@_jit
def balance(logits: Any, n: int, us: Any, vs: Any, top: Any) -> None:
    """``sinkhorn``'s iteration: lines from 2 n on become its kernel K; ``us``, ``vs`` [iterations (+ 1), n, lanes]."""
    one = logits.dtype.type(1)
    for i in range(n):
        exponentials(logits, (2 + i) * n, (3 + i) * n, top)
    vs[0] = one
    for step in range(len(us)):
        for i in range(n):
            for lane in range(ROWS):
                top[lane] = logits[(2 + i) * n, lane] * vs[step, 0, lane]
            for j in range(1, n):
                for lane in range(ROWS):
                    top[lane] += logits[(2 + i) * n + j, lane] * vs[step, j, lane]
            for lane in range(ROWS):
                us[step, i, lane] = one / top[lane]
        for j in range(n):
            for lane in range(ROWS):
                top[lane] = logits[2 * n + j, lane] * us[step, 0, lane]
            for i in range(1, n):
                for lane in range(ROWS):
                    top[lane] += logits[(2 + i) * n + j, lane] * us[step, i, lane]
            for lane in range(ROWS):
                vs[step + 1, j, lane] = one / top[lane]


@_jit
def balanced(kernel: Any, n: int, us: Any, vs: Any, mixed: Any) -> None:
    """``mixed`` [n · n, lanes]: diag(u) K diag(v)."""
    last = len(us) - 1
    for i in range(n):
        for j in range(n):
            for lane in range(ROWS):
                mixed[i * n + j, lane] = kernel[(2 + i) * n + j, lane] * us[last, i, lane] * vs[last + 1, j, lane]


@_jit
def into_balance(kernel: Any, n: int, us: Any, vs: Any, given: Any, into: Any, into_u: Any, into_v: Any) -> None:
    """Gradient of the logits, from line 2 n of ``into`` on, of ``given`` [n · n, lanes] of H, through every iteration."""
    last = len(us) - 1
    into_u[:] = 0
    into_v[:] = 0
    for i in range(n):
        for j in range(n):
            at = (2 + i) * n + j
            for lane in range(ROWS):
                into[at, lane] = given[i * n + j, lane] * us[last, i, lane] * vs[last + 1, j, lane]
            for lane in range(ROWS):
                into_u[i, lane] += given[i * n + j, lane] * kernel[at, lane] * vs[last + 1, j, lane]
            for lane in range(ROWS):
                into_v[j, lane] += given[i * n + j, lane] * kernel[at, lane] * us[last, i, lane]
    for step in range(last, -1, -1):
        # From here on into_u and into_v are those of the sums that u and v are the reciprocals of.
        for j in range(n):
            for lane in range(ROWS):
                into_v[j, lane] *= -(vs[step + 1, j, lane] * vs[step + 1, j, lane])
        for i in range(n):
            for j in range(n):
                at = (2 + i) * n + j
                for lane in range(ROWS):
                    into_u[i, lane] += kernel[at, lane] * into_v[j, lane]
            for lane in range(ROWS):
                into_u[i, lane] *= -(us[step, i, lane] * us[step, i, lane])
            for j in range(n):
                at = (2 + i) * n + j
                for lane in range(ROWS):
                    into[at, lane] += us[step, i, lane] * into_v[j, lane] + into_u[i, lane] * vs[step, j, lane]
        into_v[:] = 0
        for i in range(n):
            for j in range(n):
                at = (2 + i) * n + j
                for lane in range(ROWS):
                    into_v[j, lane] += kernel[at, lane] * into_u[i, lane]
        into_u[:] = 0
    for at in range(2 * n, len(kernel)):
        for lane in range(ROWS):
            into[at, lane] *= kernel[at, lane]
