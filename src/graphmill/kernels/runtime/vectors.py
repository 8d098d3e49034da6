"""Explicit vectors of sixteen numbers for code compiled by numba.

LLVM vectorises a simple loop over long rows. It does badly on rows of 50 numbers, where a third remains after whole
vectors. It also does not keep a block of sums in registers during a loop, which a fast matrix product needs. Here a
vector is a value like any other, of type ``<16 x float>`` or ``<16 x double>`` in LLVM IR. LLVM maps it to one 512-bit
register, or to two or four smaller ones.

    a = address(array)              address of a contiguous array; a[i] is an element; call hold(array) after its last use
    x = load(a, at)                 sixteen numbers; load_first(a, at, n): n of them (all from 16 on), the others zero
    store(a, at, x)                 and store_first(a, at, x, n)
    spread(number), spread_at(a, at)    the number in all sixteen elements
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
from typing import Any

from llvmlite import ir
from numba import types
from numba.core.errors import TypingError
from numba.extending import intrinsic, overload

from graphmill.kernels.runtime.jit import jit
from graphmill.kernels.runtime.vector_code import (
    FLAGS,
    HALF,
    Vector,
    first_lanes,
    is_whole,
    masked_load,
    masked_store,
    number_size,
    scalar,
    spread_out,
    vector_at,
    widened,
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


@intrinsic
def address(typing: Any, array: Any) -> Any:
    """The address of a contiguous array."""
    if array.layout != "C":
        raise TypingError("only a contiguous array has one address")

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        return context.make_array(signature.args[0])(context, builder, values[0]).data

    return types.CPointer(array.dtype)(array), generate


@intrinsic
def numbers_at(typing: Any, place: Any) -> Any:
    """The fp32 numbers at an address in bytes, such as a tensor's ``data_ptr()``.

    Turning a tensor into an array takes longer than a small kernel. The caller must keep the memory alive.
    """

    def generate(_context: Any, builder: Any, _signature: Any, values: Any) -> Any:
        return builder.inttoptr(values[0], ir.FloatType().as_pointer())

    return types.CPointer(types.float32)(types.intp), generate


@intrinsic
def numbers_as(typing: Any, array: Any, place: Any) -> Any:
    """Like :func:`numbers_at`, with the dtype of ``array``."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        return builder.inttoptr(values[1], context.get_value_type(signature.return_type))

    return types.CPointer(array.dtype)(array, types.intp), generate


@intrinsic
def behind(typing: Any, pointer: Any, at: Any) -> Any:
    """The address of a number."""

    def generate(_context: Any, builder: Any, _signature: Any, values: Any) -> Any:
        return builder.gep(values[0], [values[1]], inbounds=True)

    return pointer(pointer, types.intp), generate


@intrinsic
def like(typing: Any, number: Any, value: Any) -> Any:
    """``value`` in the type of ``number``: numba makes float64 of fp32 and an integer."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        return context.cast(builder, values[1], signature.args[1], signature.return_type)

    return number(number, value), generate


@intrinsic
def hold(typing: Any, array: Any) -> Any:
    """Do nothing, but keep an array of a compiled function alive until here while only its address is used."""

    def generate(context: Any, _builder: Any, _signature: Any, _values: Any) -> Any:
        return context.get_dummy_value()

    return types.void(array), generate


@jit
def whole_lines(array: Any) -> Any:
    """The first cache line of an array (``LANES`` longer than needed), as an address like that of :func:`numbers_as`.

    A vector that is not aligned to a line touches two of them in every read and write.
    """
    return numbers_as(array, (array.ctypes.data + LINE - 1) // LINE * LINE)


@intrinsic
def load(typing: Any, pointer: Any, at: Any) -> Any:
    """Load sixteen numbers from ``at`` on. uint16 stands for bfloat16, which is converted to fp32."""
    low = pointer.dtype == types.uint16

    def generate(_context: Any, builder: Any, _signature: Any, values: Any) -> Any:
        kind = ir.VectorType(HALF if low else scalar(pointer.dtype), LANES)
        found = builder.load(builder.bitcast(builder.gep(values[0], [values[1]], inbounds=True), kind.as_pointer()))
        found.align = number_size(pointer)
        return widened(builder, found) if low else found

    return Vector(types.float32 if low else pointer.dtype)(pointer, types.intp), generate


@intrinsic
def load_first(typing: Any, pointer: Any, at: Any, count: Any) -> Any:
    """Load ``count`` numbers from ``at`` on, then zeros, without reading further; uint16 is bfloat16, made fp32."""
    low = pointer.dtype == types.uint16

    def generate(_context: Any, builder: Any, _signature: Any, values: Any) -> Any:
        kind = ir.VectorType(HALF if low else scalar(pointer.dtype), LANES)
        where = builder.bitcast(builder.gep(values[0], [values[1]], inbounds=True), kind.as_pointer())
        with builder.if_else(is_whole(builder, values[2])) as (whole, part):
            with whole:
                found = builder.load(where)
                found.align = number_size(pointer)
                one = builder.block
            with part:
                some = masked_load(builder, where, first_lanes(builder, values[2]), number_size(pointer))
                other = builder.block
        both = builder.phi(kind)
        both.add_incoming(found, one)
        both.add_incoming(some, other)
        return widened(builder, both) if low else both

    return Vector(types.float32 if low else pointer.dtype)(pointer, types.intp, types.intp), generate


@intrinsic
def store(typing: Any, pointer: Any, at: Any, vector: Any) -> Any:
    """Store sixteen numbers from ``at`` on."""

    def generate(context: Any, builder: Any, _signature: Any, values: Any) -> Any:
        done = builder.store(values[2], vector_at(builder, pointer, values[0], values[1]))
        done.align = number_size(pointer)
        return context.get_dummy_value()

    return types.void(pointer, types.intp, vector), generate


@intrinsic
def store_first(typing: Any, pointer: Any, at: Any, vector: Any, count: Any) -> Any:
    """Store the first ``count`` elements from ``at`` on, without writing further."""

    def generate(context: Any, builder: Any, _signature: Any, values: Any) -> Any:
        where = vector_at(builder, pointer, values[0], values[1])
        with builder.if_else(is_whole(builder, values[3])) as (whole, part):
            with whole:
                builder.store(values[2], where).align = number_size(pointer)
            with part:
                masked_store(builder, values[2], where, first_lanes(builder, values[3]), number_size(pointer))
        return context.get_dummy_value()

    return types.void(pointer, types.intp, vector, types.intp), generate


@intrinsic
def spread(typing: Any, number: Any) -> Any:
    """The number in every element."""

    def generate(_context: Any, builder: Any, _signature: Any, values: Any) -> Any:
        return spread_out(builder, values[0], ir.VectorType(values[0].type, LANES))

    return Vector(number)(number), generate


@intrinsic
def spread_at(typing: Any, pointer: Any, at: Any) -> Any:
    """The number at ``at`` in every element."""

    def generate(_context: Any, builder: Any, _signature: Any, values: Any) -> Any:
        found = builder.load(builder.gep(values[0], [values[1]], inbounds=True))
        return spread_out(builder, found, ir.VectorType(found.type, LANES))

    return Vector(pointer.dtype)(pointer, types.intp), generate


def _elementwise(operation: str) -> Any:
    def declare(typing: Any, left: Any, right: Any) -> Any:
        def generate(_context: Any, builder: Any, _signature: Any, values: Any) -> Any:
            return getattr(builder, operation)(*values, flags=FLAGS)

        return left(left, right), generate

    return intrinsic(declare)


_add, _subtract, _multiply = _elementwise("fadd"), _elementwise("fsub"), _elementwise("fmul")
_divide = _elementwise("fdiv")


def _both(left: Any, right: Any) -> bool:
    return isinstance(left, Vector) and isinstance(right, Vector)


@overload(operator.iadd)
@overload(operator.add)
def _vector_add(left, right):  # type: ignore[no-untyped-def]
    return (lambda left, right: _add(left, right)) if _both(left, right) else None


@overload(operator.sub)
def _vector_subtract(left, right):  # type: ignore[no-untyped-def]
    return (lambda left, right: _subtract(left, right)) if _both(left, right) else None


@overload(operator.mul)
def _vector_multiply(left, right):  # type: ignore[no-untyped-def]
    return (lambda left, right: _multiply(left, right)) if _both(left, right) else None


@overload(operator.truediv)
def _vector_divide(left, right):  # type: ignore[no-untyped-def]
    return (lambda left, right: _divide(left, right)) if _both(left, right) else None
