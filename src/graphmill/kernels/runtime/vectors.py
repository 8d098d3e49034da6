"""Explicit vectors of sixteen numbers for code compiled by numba.

LLVM vectorises a simple loop over long rows. It does badly on rows of 50 numbers, where a third remains after whole
vectors. It also does not keep a block of sums in registers during a loop, which a fast matrix product needs. Here a
vector is a value like any other, of type ``<16 x float>`` or ``<16 x double>`` in LLVM IR. LLVM maps it to one 512-bit
register, or to two or four smaller ones.

    a = address(array)              address of a contiguous array; a[i] is an element; call hold(array) after its last use
    x = load(a, at)                 sixteen numbers; load_first(a, at, n): n of them (all from 16 on), the others zero
    store(a, at, x)                 and store_first(a, at, x, n)
    spread(number), spread_at(a, at)    the number in all sixteen elements
    load_two, load_four; spread_two, spread_four    vectors of 32 and 64 numbers; load_like(x, a, at), spread_like(x, number)
    x + y, x - y, x * y             by element; a sum of products may be fused
    total(x), highest(x)            over the sixteen elements; larger(x, y) is by element
    highest_of_each((x, ...))       the highest of each of sixteen vectors, as one vector; total_of_each((x, ...)): the sums
    unless_finite(x, y)             y, or NaN where x is an infinity or NaN
    above(x, y)                     1 where x is above y, else 0
    reaching(x, number)             bits of the elements at least the number; exceeding: above it; count_bits, lowest_bit
    first_of(x, n, y)               first n elements of x, then of y; where_positive(a, x, y): x or y by the sign of a
    where_set(a, at, n, x, y)       elements of x where the byte is not zero, else of y; y after the first n bytes
    exponential(x)                  as compiled_math.exp
    keep(x, place, ...)             dropout of elements place to place + 15, by dropout.words

Offsets are counted in numbers and are not checked. Pass addresses instead of arrays: numba counts the references to an
array, and threads would wait for each other. Do not load a vector soon after storing a part of it (``load_first`` after
``store_first``): the processor would wait until the store has reached its cache.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core.errors import TypingError
from numba.extending import intrinsic, overload

from graphmill.kernels.runtime.compiled_math import prefetch
from graphmill.kernels.runtime.jit import jit
from graphmill.kernels.runtime.vector_code import (
    FLAGS,
    Vector,
    either,
    first_lanes,
    is_whole,
    load_vector,
    masked_load,
    masked_store,
    spread_out,
    store_vector,
    vector_at,
    widened,
    written,
)
from graphmill.kernels.runtime.vector_code import (
    LANES as LANES,
)

LINE = 64
"""Bytes of a cache line."""


@jit
def padded(width: int) -> int:
    """``width``, rounded up to whole vectors."""
    return (width + LANES - 1) // LANES * LANES


@jit
def fetch(table: Any, first: int, count: int) -> None:
    """Prefetch the cache lines of ``count`` numbers from ``first`` on, of an array or address."""
    for place in range(first, first + count, LANES):
        prefetch(table, place)


@intrinsic
def address(typing: Any, array: Any) -> Any:
    """The address of a contiguous array."""
    if array.layout != "C":
        raise TypingError("only a contiguous array has one address")

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        return context.make_array(signature.args[0])(context, builder, values[0]).data

    return types.CPointer(array.dtype)(array), generate


@written(lambda place: types.CPointer(types.float32)(types.intp))
def numbers_at(builder: Any, place: Any) -> Any:
    """The fp32 numbers at an address in bytes, such as a tensor's ``data_ptr()``.

    Turning a tensor into an array takes longer than a small kernel. The caller must keep the memory alive.
    """
    return builder.inttoptr(place, ir.FloatType().as_pointer())


@intrinsic
def numbers_as(typing: Any, array: Any, place: Any) -> Any:
    """Like :func:`numbers_at`, with the dtype of ``array``."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        return builder.inttoptr(values[1], context.get_value_type(signature.return_type))

    return types.CPointer(array.dtype)(array, types.intp), generate


@written(lambda pointer, at: pointer(pointer, types.intp))
def behind(builder: Any, pointer: Any, at: Any) -> Any:
    """The address of a number."""
    return builder.gep(pointer, [at], inbounds=True)


@written(lambda number, value: number(number, number))
def like(builder: Any, number: Any, value: Any) -> Any:
    """``value`` in the type of ``number``: numba makes float64 of fp32 and an integer."""
    return value


@written(lambda array: types.void(array))
def hold(builder: Any, array: Any) -> None:
    """Do nothing, but keep an array of a compiled function alive until here while only its address is used."""


@jit
def whole_lines(array: Any) -> Any:
    """The first cache line of an array (``LANES`` longer than needed), as an address like that of :func:`numbers_as`.

    A vector that is not aligned to a line touches two of them in every read and write.
    """
    return numbers_as(array, (array.ctypes.data + LINE - 1) // LINE * LINE)


def _loaded(pointer: Any, lanes: int = LANES) -> Vector:
    """The type of a vector of a pointer's numbers. uint16 stands for bfloat16, which is converted to fp32."""
    return Vector(types.float32 if pointer.dtype == types.uint16 else pointer.dtype, lanes)


def _load(lanes: int) -> Any:
    @written(lambda pointer, at: _loaded(pointer, lanes)(pointer, types.intp))
    def load(builder: Any, pointer: Any, at: Any) -> Any:
        return widened(builder, load_vector(builder, vector_at(builder, pointer, at, lanes)))

    return load


# Load 16, 32 or 64 numbers from ``at`` on.
load, load_two, load_four = (_load(n * LANES) for n in (1, 2, 4))


@written(lambda vector, pointer, at: _loaded(pointer, vector.lanes)(vector, pointer, types.intp))
def load_like(builder: Any, vector: Any, pointer: Any, at: Any) -> Any:
    """Load as many numbers as ``vector`` has."""
    return widened(builder, load_vector(builder, vector_at(builder, pointer, at, vector.type.count)))


@written(lambda pointer, at, count: _loaded(pointer)(pointer, types.intp, types.intp))
def load_first(builder: Any, pointer: Any, at: Any, count: Any) -> Any:
    """Load ``count`` numbers from ``at`` on, then zeros, without reading further; uint16 is bfloat16, made fp32."""
    where = vector_at(builder, pointer, at)
    (found,) = either(
        builder,
        is_whole(builder, count),
        lambda: [load_vector(builder, where)],
        lambda: [masked_load(builder, where, first_lanes(builder, count))],
    )
    return widened(builder, found)


@written(lambda pointer, at, vector: types.void(pointer, types.intp, vector))
def store(builder: Any, pointer: Any, at: Any, vector: Any) -> None:
    """Store all numbers of a vector from ``at`` on."""
    store_vector(builder, vector, vector_at(builder, pointer, at, vector.type.count))


@written(lambda pointer, at, vector, count: types.void(pointer, types.intp, vector, types.intp))
def store_first(builder: Any, pointer: Any, at: Any, vector: Any, count: Any) -> None:
    """Store the first ``count`` elements from ``at`` on, without writing further."""
    where = vector_at(builder, pointer, at)
    with builder.if_else(is_whole(builder, count)) as (whole, part):
        with whole:
            store_vector(builder, vector, where)
        with part:
            masked_store(builder, vector, where, first_lanes(builder, count))


def _spread(lanes: int) -> Any:
    @written(lambda number: Vector(number, lanes)(number))
    def spread(builder: Any, number: Any) -> Any:
        return spread_out(builder, number, lanes)

    return spread


# The number in all of 16, 32 or 64 elements.
spread, spread_two, spread_four = (_spread(n * LANES) for n in (1, 2, 4))


@written(lambda vector, number: vector(vector, vector.dtype))
def spread_like(builder: Any, vector: Any, number: Any) -> Any:
    """The number in as many elements as ``vector`` has, in its precision."""
    return spread_out(builder, number, vector.type.count)


@written(lambda vector: types.intp(vector))
def lanes_of(builder: Any, vector: Any) -> Any:
    """The number of elements."""
    return ir.IntType(64)(vector.type.count)


@written(lambda pointer, at: Vector(pointer.dtype)(pointer, types.intp))
def spread_at(builder: Any, pointer: Any, at: Any) -> Any:
    """The number at ``at`` in every element."""
    return spread_out(builder, builder.load(builder.gep(pointer, [at], inbounds=True)))


def _by_element(operation: str, *operators: Callable[..., Any]) -> None:
    """Let operators of two vectors be an operation of LLVM's on their elements."""

    @written(lambda left, right: left(left, right))
    def combine(builder: Any, left: Any, right: Any) -> Any:
        return getattr(builder, operation)(left, right, flags=FLAGS)

    def of_vectors(left, right):  # type: ignore[no-untyped-def]
        both = isinstance(left, Vector) and isinstance(right, Vector)
        return (lambda left, right: combine(left, right)) if both else None

    for each in operators:
        overload(each)(of_vectors)


_by_element("fadd", operator.add, operator.iadd)
_by_element("fsub", operator.sub)
_by_element("fmul", operator.mul)
_by_element("fdiv", operator.truediv)
