"""Functions for code compiled by numba: elementary functions in a form that LLVM can vectorise (it cannot vectorise
library calls), and prefetching."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, overload

from graphmill.kernels.runtime.jit import FAST

# e^x as 2^n·e^r: constants of the reduction (ln 2 in two parts), and 1/2! to 1/7!, enough for |r| ≤ ln 2 / 2.
_LOG2E, _LN2_HIGH, _LN2_LOW = np.float32(1.44269504), np.float32(0.693359375), np.float32(-2.12194440e-4)
_TAYLOR = tuple(np.float32(1 / math.factorial(n)) for n in range(2, 8))
_ZERO, _HALF, _ONE, _SMALLEST = np.float32(0), np.float32(0.5), np.float32(1), np.float32(-87)
EXP_FLOAT32 = (_LOG2E, _LN2_HIGH, _LN2_LOW, _TAYLOR, _SMALLEST)
"""log₂ e, ln 2 in two parts, the series' coefficients from r² on, and the bound below which the result is zero."""


@intrinsic
def _float_of_bits(_typing: Any, bits: Any) -> Any:
    def generate(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], ir.FloatType())

    return types.float32(types.int32), generate


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
        power = _float_of_bits(np.int32((np.int32(n) + np.int32(127)) << np.int32(23)))
        return _ZERO if x < _SMALLEST else y * power

    return single


@intrinsic
def prefetch(_typing: Any, array: Any, place: Any) -> Any:
    """Prefetch the cache line of element ``place`` (flat index) of a contiguous array.

    An address (``vectors``) may be given instead of the array.

    The processor itself prefetches only within a page of 4 KiB and after a few misses. If rows of two or three arrays
    are read in turn, it hardly ever does.
    """

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer, word = ir.IntType(8).as_pointer(), ir.IntType(32)
        pointed = isinstance(array, types.CPointer)
        data = args[0] if pointed else context.make_array(signature.args[0])(context, builder, args[0]).data
        fetch = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(ir.VoidType(), [pointer, word, word, word]), "llvm.prefetch.p0i8"
        )
        line = builder.bitcast(builder.gep(data, [args[1]]), pointer)
        # Arguments: read access, all cache levels, data cache.
        builder.call(fetch, [line, word(0), word(3), word(1)])
        return context.get_dummy_value()

    return types.void(array, types.int64), generate
