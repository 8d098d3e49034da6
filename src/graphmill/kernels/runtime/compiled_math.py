"""``exp`` for code compiled by numba, in a form that LLVM can vectorise: it cannot vectorise library calls."""

from __future__ import annotations

import math

import numpy as np
from numba import types
from numba.extending import overload

from graphmill.kernels.runtime.jit import FAST

# e^x as 2^n·e^r: constants of the reduction (ln 2 in two parts), and 1/2! to 1/7!, enough for |r| ≤ ln 2 / 2.
_LOG2E, _LN2_HIGH, _LN2_LOW = np.float32(1.44269504), np.float32(0.693359375), np.float32(-2.12194440e-4)
_TAYLOR = tuple(np.float32(1 / math.factorial(n)) for n in range(2, 8))
_ZERO, _HALF, _ONE, _SMALLEST = np.float32(0), np.float32(0.5), np.float32(1), np.float32(-87)


def exp(x):  # type: ignore[no-untyped-def]
    """e^x for compiled code. In float32 a polynomial that vectorises, good to 3·10⁻⁷ for x up to about 0."""
    # numba replaces the whole function by its overload below; Python itself never gets here.
    raise NotImplementedError("only inside compiled functions")  # numba puts the overload below in its place


@overload(exp, jit_options={"fastmath": FAST})
def _compiled_exp(x):  # type: ignore[no-untyped-def]
    if x != types.float32:
        return lambda x: math.exp(x)

    def single(x):  # type: ignore[no-untyped-def]
        n = np.floor(x * _LOG2E + _HALF)
        r = (x - n * _LN2_HIGH) - n * _LN2_LOW
        y = _TAYLOR[5]
        y = y * r + _TAYLOR[4]
        y = y * r + _TAYLOR[3]
        y = y * r + _TAYLOR[2]
        y = y * r + _TAYLOR[1]
        y = y * r + _TAYLOR[0]
        y = y * r * r + r + _ONE
        power = np.int32((np.int32(n) + np.int32(127)) << np.int32(23)).view(np.float32)
        return _ZERO if x < _SMALLEST else y * power

    return single
