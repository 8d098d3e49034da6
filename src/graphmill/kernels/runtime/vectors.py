"""Vectors of sixteen numbers for code compiled by numba: what a compiler makes of a loop by itself, said outright.

LLVM vectorises a simple loop over long rows. It does badly on rows of 50 numbers, where a third is left over from whole
vectors, and it does not keep a block of results in registers while a loop runs over what they are sums of, which is what a
matrix product lives on. Here a vector is a value like any other, of type ``<16 x float>`` or ``<16 x double>`` in LLVM's
language: one register where the processor has 512 bits, two or four elsewhere; LLVM sees to that.

    a = address(array)              where a contiguous array begins; a[i] is an element; hold(array) after its last use
    x = load(a, at)                 sixteen numbers; load_first(a, at, n): n of them (all from 16 on), the others zero
    store(a, at, x)                 and store_first(a, at, x, n); stream(a, at, x) past the caches, then settle()
    spread(number), spread_at(a, at)    sixteen times the same
    x + y, x - y, x * y             by element; a sum of products may be fused
    total(x), highest(x)            over the sixteen; larger(x, y) by element
    highest_of_each((x, ...))       the highest of each of sixteen vectors, as one; total_of_each((x, ...)) their sums
    unless_finite(x, y)             y, or NaN where x is an infinity or NaN
    above(x, y)                     1 where x is above y, else 0
    reaching(x, number)             at least the number, exceeding: above it, as bits; count_bits, lowest_bit of these
    first_of(x, n, y)               n elements of x, the others of y; where_positive(a, x, y): by the sign of a
    where_set(a, at, n, x, y)       elements of x where the byte is not zero, of y elsewhere and behind the first n bytes
    exponential(x)                  as compiled_math.exp
    keep(x, place, ...)             dropout of elements place to place + 15, by dropout.words

Places are counted in numbers, and nothing checks them. Addresses, not arrays, are handed on: numba counts the references
to an array, and threads would wait for each other. What part of a vector has been stored is not soon loaded again (by
``store_first`` and ``load_first``, one after the other): a processor then waits until the store has reached its cache.
"""

from __future__ import annotations

import operator
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.errors import TypingError
from numba.extending import intrinsic, overload

from graphmill.kernels.runtime.compiled_math import EXP_FLOAT32
from graphmill.kernels.runtime.jit import jit
from graphmill.kernels.runtime.vector_code import (
    BIT,
    FLAGS,
    HALF,
    INT,
    INTS,
    Vector,
    called,
    constant,
    counting,
    first_lanes,
    is_whole,
    masked_load,
    masked_store,
    number_size,
    scalar,
    spread_out,
    type_suffix,
    vector_at,
    widened,
)
from graphmill.kernels.runtime.vector_code import (
    LANES as LANES,
)
from graphmill.kernels.runtime.words import WORD_CONSTANTS

LINE = 64
"""Bytes of a cache line."""


@jit
def padded(width: int) -> int:
    """``width`` up to whole vectors."""
    return (width + LANES - 1) // LANES * LANES


@intrinsic
def address(typing: Any, array: Any) -> Any:
    """Where a contiguous array begins."""
    if array.layout != "C":
        raise TypingError("only a contiguous array has one address")

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        return context.make_array(signature.args[0])(context, builder, values[0]).data

    return types.CPointer(array.dtype)(array), generate


@intrinsic
def numbers_at(typing: Any, place: Any) -> Any:
    """The numbers of fp32 that begin at an address in bytes, a tensor's ``data_ptr()``.

    To make an array of a tensor takes longer than a small kernel. Nothing keeps the memory but the caller.
    """

    def generate(_context: Any, builder: Any, _signature: Any, values: Any) -> Any:
        return builder.inttoptr(values[0], ir.FloatType().as_pointer())

    return types.CPointer(types.float32)(types.intp), generate


@intrinsic
def numbers_as(typing: Any, array: Any, place: Any) -> Any:
    """As :func:`numbers_at`, numbers of the kind that ``array`` has."""

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
    """Nothing; but an array made in a compiled function is there until here, whoever has but its address."""

    def generate(context: Any, _builder: Any, _signature: Any, _values: Any) -> Any:
        return context.get_dummy_value()

    return types.void(array), generate


@jit
def whole_lines(array: Any) -> Any:
    """Where an array's first cache line begins, as :func:`numbers_as` has it; the array is ``LANES`` longer than needed.

    A vector that does not begin with a line takes two of them, to read and to write.
    """
    return numbers_as(array, (array.ctypes.data + LINE - 1) // LINE * LINE)


@intrinsic
def load(typing: Any, pointer: Any, at: Any) -> Any:
    """Sixteen numbers from ``at`` on. Of uint16: bfloat16, as fp32."""
    low = pointer.dtype == types.uint16

    def generate(_context: Any, builder: Any, _signature: Any, values: Any) -> Any:
        kind = ir.VectorType(HALF if low else scalar(pointer.dtype), LANES)
        found = builder.load(builder.bitcast(builder.gep(values[0], [values[1]], inbounds=True), kind.as_pointer()))
        found.align = number_size(pointer)
        return widened(builder, found) if low else found

    return Vector(types.float32 if low else pointer.dtype)(pointer, types.intp), generate


@intrinsic
def load_first(typing: Any, pointer: Any, at: Any, count: Any) -> Any:
    """``count`` numbers from ``at`` on, and zeros. Nothing behind them is read. Of uint16: bfloat16, as fp32."""
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
    """To sixteen numbers from ``at`` on."""

    def generate(context: Any, builder: Any, _signature: Any, values: Any) -> Any:
        done = builder.store(values[2], vector_at(builder, pointer, values[0], values[1]))
        done.align = number_size(pointer)
        return context.get_dummy_value()

    return types.void(pointer, types.intp, vector), generate


@intrinsic
def store_first(typing: Any, pointer: Any, at: Any, vector: Any, count: Any) -> Any:
    """The first ``count`` elements to numbers from ``at`` on; nothing behind them is touched."""

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
def stream(typing: Any, pointer: Any, at: Any, vector: Any) -> Any:
    """To sixteen numbers from ``at`` on, which begin a cache line, past the caches: the line is not read before.

    For tables that no cache holds until they are read again. :func:`settle` follows the last.
    """

    def generate(context: Any, builder: Any, _signature: Any, values: Any) -> Any:
        done = builder.store(values[2], vector_at(builder, pointer, values[0], values[1]))
        done.align = LINE
        done.set_metadata("nontemporal", builder.module.add_metadata([INT(1)]))
        return context.get_dummy_value()

    return types.void(pointer, types.intp, vector), generate


@intrinsic
def settle(typing: Any) -> Any:
    """What was streamed is in memory before whatever comes after."""

    def generate(context: Any, builder: Any, _signature: Any, _values: Any) -> Any:
        builder.fence("seq_cst")
        return context.get_dummy_value()

    return types.void(), generate


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


@intrinsic
def larger(typing: Any, left: Any, right: Any) -> Any:
    """The larger one by element; ``right`` where ``left`` is NaN."""

    def generate(_context: Any, builder: Any, _signature: Any, values: Any) -> Any:
        return builder.select(builder.fcmp_ordered(">", *values), *values)

    return left(left, right), generate


@intrinsic
def unless_finite(typing: Any, vector: Any, before: Any) -> Any:
    """``before``, or NaN, by element where ``vector`` is an infinity or NaN. One step where a comparison takes three."""

    def generate(_context: Any, builder: Any, _signature: Any, values: Any) -> Any:
        # The two are fused and nothing else: (x + y) · 0 for x · 0 + y · 0 might overflow.
        none = builder.fmul(values[0], constant(values[0].type, 0.0), flags=("contract",))
        return builder.fadd(none, values[1], flags=("contract",))

    return vector(vector, before), generate


def _as_bits(operation: str) -> Any:
    def declare(typing: Any, vector: Any, number: Any) -> Any:
        def generate(_context: Any, builder: Any, _signature: Any, values: Any) -> Any:
            true = builder.fcmp_ordered(operation, values[0], spread_out(builder, values[1], values[0].type))
            return builder.zext(builder.bitcast(true, HALF), ir.IntType(64))

        return types.int64(vector, vector.dtype), generate

    return declare


# The elements that are at least, or above, a number, as bits of an integer, the first element's the lowest.
reaching, exceeding = intrinsic(_as_bits(">=")), intrinsic(_as_bits(">"))


@intrinsic
def lowest_bit(typing: Any, bits: Any) -> Any:
    """The place of the lowest bit that is set; one is."""

    def generate(_context: Any, builder: Any, _signature: Any, values: Any) -> Any:
        return called(builder, "llvm.cttz.i64", ir.IntType(64), values[0], BIT(1))

    return types.int64(types.int64), generate


@intrinsic
def count_bits(typing: Any, bits: Any) -> Any:
    """How many bits are set."""

    def generate(_context: Any, builder: Any, _signature: Any, values: Any) -> Any:
        return called(builder, "llvm.ctpop.i64", ir.IntType(64), values[0])

    return types.int64(types.int64), generate


@intrinsic
def above(typing: Any, left: Any, right: Any) -> Any:
    """By element: 1 where ``left`` is above ``right``, else 0."""

    def generate(_context: Any, builder: Any, _signature: Any, values: Any) -> Any:
        kind = values[0].type
        return builder.select(builder.fcmp_ordered(">", *values), constant(kind, 1.0), constant(kind, 0.0))

    return left(left, right), generate


def _of_each(name: str, join: Any) -> Any:
    """Two vectors' halves are folded into one vector, and so on: a third of the steps of sixteen reductions."""

    def declare(typing: Any, vectors: Any) -> Any:
        def generate(_context: Any, builder: Any, _signature: Any, values: Any) -> Any:
            rest = cgutils.unpack_tuple(builder, values[0], LANES)
            half = LANES // 2
            while half:
                low = [i for i in range(2 * LANES) if i % (2 * half) < half]
                lower, upper = (ir.Constant(INTS, [i + shift for i in low]) for shift in (0, half))
                folded = []
                for left, right in zip(rest[::2], rest[1::2], strict=True):
                    one, other = (builder.shuffle_vector(left, right, mask) for mask in (lower, upper))
                    folded.append(join(builder, one, other))
                rest, half = folded, half // 2
            return rest[0]

        if not isinstance(vectors, types.UniTuple) or vectors.count != LANES:
            raise TypingError(f"{name} of sixteen vectors")
        return vectors.dtype(vectors), generate

    return declare


def _higher(builder: Any, one: Any, other: Any) -> Any:
    return builder.select(builder.fcmp_ordered(">", one, other, flags=("nnan", "nsz")), one, other)


# The highest number, or the sum, of each of sixteen vectors, as one vector.
highest_of_each = intrinsic(_of_each("the highest number", _higher))
total_of_each = intrinsic(_of_each("the sum", lambda builder, one, other: builder.fadd(one, other, flags=FLAGS)))


@intrinsic
def where_positive(typing: Any, vector: Any, left: Any, right: Any) -> Any:
    """By element: ``left`` where ``vector`` is above zero, else ``right``."""

    def generate(_context: Any, builder: Any, _signature: Any, values: Any) -> Any:
        above = builder.fcmp_ordered(">", values[0], constant(values[0].type, 0.0))
        return builder.select(above, values[1], values[2])

    return left(vector, left, right), generate


@intrinsic
def positive_bits(typing: Any, vector: Any) -> Any:
    """A bit an element, the first one lowest: whether it is above zero."""

    def generate(_context: Any, builder: Any, _signature: Any, values: Any) -> Any:
        above = builder.fcmp_ordered(">", values[0], constant(values[0].type, 0.0))
        return builder.bitcast(above, ir.IntType(LANES))

    return types.uint16(vector), generate


@intrinsic
def where_bits(typing: Any, bits: Any, left: Any, right: Any) -> Any:
    """By element: ``left`` where its bit is set, else ``right``."""

    def generate(_context: Any, builder: Any, _signature: Any, values: Any) -> Any:
        return builder.select(builder.bitcast(values[0], ir.VectorType(ir.IntType(1), LANES)), values[1], values[2])

    return left(types.uint16, left, right), generate


@intrinsic
def first_of(typing: Any, vector: Any, count: Any, other: Any) -> Any:
    """The first ``count`` elements of ``vector``, and the others of ``other``."""

    def generate(_context: Any, builder: Any, _signature: Any, values: Any) -> Any:
        return builder.select(first_lanes(builder, values[1]), values[0], values[2])

    return vector(vector, types.intp, other), generate


@intrinsic
def where_set(typing: Any, pointer: Any, at: Any, count: Any, left: Any, right: Any) -> Any:
    """``left`` where one of the first ``count`` bytes from ``at`` on is not zero, else ``right``. Nothing behind is read."""

    def generate(_context: Any, builder: Any, _signature: Any, values: Any) -> Any:
        kind = ir.VectorType(ir.IntType(8), LANES)
        where = builder.bitcast(builder.gep(values[0], [values[1]], inbounds=True), kind.as_pointer())
        found = masked_load(builder, where, first_lanes(builder, values[2]), 1)
        return builder.select(builder.icmp_unsigned("!=", found, constant(kind, 0)), values[3], values[4])

    return left(pointer, types.intp, types.intp, left, right), generate


def _reduction(name: str, flags: tuple[str, ...], start: float | None) -> Any:
    def declare(typing: Any, vector: Any) -> Any:
        def generate(_context: Any, builder: Any, _signature: Any, values: Any) -> Any:
            number = scalar(vector.dtype)
            given = [values[0]] if start is None else [number(start), values[0]]
            kind = ir.FunctionType(number, [v.type for v in given])
            full = f"llvm.vector.reduce.{name}.{type_suffix(vector.dtype)}"
            return builder.call(cgutils.get_or_insert_function(builder.module, kind, full), given, fastmath=flags)

        return vector.dtype(vector), generate

    return declare


total = intrinsic(_reduction("fadd", FLAGS, 0.0))
highest = intrinsic(_reduction("fmax", ("nnan", "nsz"), None))


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


@intrinsic
def exponential(typing: Any, vector: Any) -> Any:
    """e^x by element: in fp32 the polynomial of ``compiled_math``, for x up to 88; in float64 the library's."""

    def generate(_context: Any, builder: Any, _signature: Any, values: Any) -> Any:
        kind, suffix = values[0].type, type_suffix(vector.dtype)
        if vector.dtype == types.float64:
            return called(builder, f"llvm.exp.{suffix}", kind, values[0])
        return _exponential(builder, kind, values[0])

    return vector(vector), generate


def _exponential(builder: Any, kind: ir.VectorType, x: Any) -> Any:
    log2e, ln2_high, ln2_low, taylor, smallest = EXP_FLOAT32

    def number(value: Any) -> ir.Constant:
        return constant(kind, float(value))

    def times(a: Any, b: Any) -> Any:
        return builder.fmul(a, b, flags=FLAGS)

    def plus(a: Any, b: Any) -> Any:
        return builder.fadd(a, b, flags=FLAGS)

    scaled = plus(times(x, number(log2e)), number(0.5))
    n = called(builder, "llvm.floor.v16f32", kind, scaled)
    r = builder.fsub(x, times(n, number(ln2_high)), flags=FLAGS)
    r = builder.fsub(r, times(n, number(ln2_low)), flags=FLAGS)
    y = number(taylor[-1])
    for factor in taylor[-2::-1]:
        y = plus(times(y, r), number(factor))
    y = plus(plus(times(times(y, r), r), r), number(1.0))
    bits = builder.shl(builder.add(builder.fptosi(n, INTS), constant(INTS, 127)), constant(INTS, 23))
    found = times(y, builder.bitcast(bits, kind))
    return builder.select(builder.fcmp_ordered("<", x, number(smallest)), number(0.0), found)


@intrinsic
def keep(typing: Any, vector: Any, place: Any, low: Any, high: Any, threshold: Any, kept: Any) -> Any:
    """Each element times ``kept`` where its word is at least ``threshold``, else zero. ``place``: of the first element."""

    def generate(_context: Any, builder: Any, _signature: Any, values: Any) -> Any:
        vector_, place_, *numbers = values
        low_, high_, threshold_ = (spread_out(builder, n, INTS) for n in numbers[:3])
        first, second, third = (constant(INTS, int(c)) for c in WORD_CONSTANTS)

        def mixed(x: Any, by: int) -> Any:
            return builder.xor(x, builder.lshr(x, constant(INTS, by)))

        x = builder.add(spread_out(builder, builder.trunc(place_, INT), INTS), counting())
        x = mixed(builder.add(builder.mul(x, first), low_), 16)
        x = mixed(builder.xor(builder.mul(x, second), high_), 15)
        x = mixed(builder.mul(x, third), 16)
        factor = spread_out(builder, numbers[3], vector_.type)
        scaled = builder.fmul(vector_, factor, flags=FLAGS)
        return builder.select(builder.icmp_unsigned(">=", x, threshold_), scaled, constant(vector_.type, 0.0))

    half = types.uint32
    return vector(vector, types.intp, half, half, half, vector.dtype), generate
