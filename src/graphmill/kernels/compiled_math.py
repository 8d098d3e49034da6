"""Elementary functions for code compiled by numba, in a form that LLVM vectorises; the libraries' own calls do not."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import types
from numba.extending import intrinsic, overload

# Sums may be reassociated and fused; infinities and NaN keep their meaning (a masked logit is −∞).
FAST = {"reassoc", "contract", "nsz", "arcp"}
# e^x as 2^n·e^r: constants of the reduction (ln 2 in two parts), and 1/2! to 1/7!, enough for |r| ≤ ln 2 / 2.
_LOG2E, _LN2_HIGH, _LN2_LOW = np.float32(1.44269504), np.float32(0.693359375), np.float32(-2.12194440e-4)
_TAYLOR = tuple(np.float32(1 / math.factorial(n)) for n in range(2, 8))
_ZERO, _HALF, _ONE, _SMALLEST = np.float32(0), np.float32(0.5), np.float32(1), np.float32(-87)
EXP_FLOAT32 = (_LOG2E, _LN2_HIGH, _LN2_LOW, _TAYLOR, _SMALLEST)
"""log₂ e, ln 2 in two parts, the series' factors from r² on, and below what the result is zero."""


@intrinsic
def _float_of_bits(_typing: Any, bits: Any) -> Any:
    def generate(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        from llvmlite import ir

        return builder.bitcast(args[0], ir.FloatType())

    return types.float32(types.int32), generate


def exp(x):  # type: ignore[no-untyped-def]
    """e^x for compiled code. In float32 a polynomial that vectorises, good to 3·10⁻⁷ for x up to about 0."""
    # numba replaces the whole function by its overload below; Python itself never gets here.
    raise NotImplementedError("only inside compiled functions")


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
        power = _float_of_bits(np.int32((np.int32(n) + np.int32(127)) << np.int32(23)))
        return _ZERO if x < _SMALLEST else y * power

    return single
