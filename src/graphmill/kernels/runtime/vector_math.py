"""Functions of vectors of sixteen numbers (``vectors``) other than + - * /: sums, comparisons, selections, e^x, masks."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.errors import TypingError
from numba.extending import intrinsic

from graphmill.kernels.runtime.compiled_math import EXP_FLOAT32
from graphmill.kernels.runtime.vector_code import (
    BIT,
    FLAGS,
    HALF,
    INT,
    INTS,
    called,
    constant,
    counting,
    first_lanes,
    masked_load,
    scalar,
    spread_out,
    type_suffix,
)
from graphmill.kernels.runtime.vector_code import (
    LANES as LANES,
)
from graphmill.kernels.runtime.words import WORD_CONSTANTS


@intrinsic
def larger(typing: Any, left: Any, right: Any) -> Any:
    """The larger of the two, by element; ``right`` where ``left`` is NaN."""

    def generate(_context: Any, builder: Any, _signature: Any, values: Any) -> Any:
        return builder.select(builder.fcmp_ordered(">", *values), *values)

    return left(left, right), generate


@intrinsic
def unless_finite(typing: Any, vector: Any, before: Any) -> Any:
    """By element: ``before``, or NaN if ``vector`` is infinite or NaN; one instruction, where a comparison takes three."""

    def generate(_context: Any, builder: Any, _signature: Any, values: Any) -> Any:
        # Only this multiplication and addition may be fused: (x + y) · 0 instead of x · 0 + y · 0 could overflow.
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


# The elements that are at least (or above) a number, as bits of an integer; the first element is the lowest bit.
reaching, exceeding = intrinsic(_as_bits(">=")), intrinsic(_as_bits(">"))


@intrinsic
def lowest_bit(typing: Any, bits: Any) -> Any:
    """The position of the lowest set bit; at least one must be set."""

    def generate(_context: Any, builder: Any, _signature: Any, values: Any) -> Any:
        return called(builder, "llvm.cttz.i64", ir.IntType(64), values[0], BIT(1))

    return types.int64(types.int64), generate


@intrinsic
def count_bits(typing: Any, bits: Any) -> Any:
    """The number of set bits."""

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
    """Fold the halves of two vectors into one vector, and so on: a third of the instructions of sixteen reductions."""

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
    """One bit per element, the first one lowest: whether it is above zero."""

    def generate(_context: Any, builder: Any, _signature: Any, values: Any) -> Any:
        above = builder.fcmp_ordered(">", values[0], constant(values[0].type, 0.0))
        return builder.bitcast(above, ir.IntType(LANES))

    return types.uint16(vector), generate


@intrinsic
def where_bits(typing: Any, bits: Any, left: Any, right: Any) -> Any:
    """By element: ``left`` if its bit is set, else ``right``."""

    def generate(_context: Any, builder: Any, _signature: Any, values: Any) -> Any:
        return builder.select(builder.bitcast(values[0], ir.VectorType(ir.IntType(1), LANES)), values[1], values[2])

    return left(types.uint16, left, right), generate


@intrinsic
def first_of(typing: Any, vector: Any, count: Any, other: Any) -> Any:
    """The first ``count`` elements of ``vector``, then those of ``other``."""

    def generate(_context: Any, builder: Any, _signature: Any, values: Any) -> Any:
        return builder.select(first_lanes(builder, values[1]), values[0], values[2])

    return vector(vector, types.intp, other), generate


@intrinsic
def where_set(typing: Any, pointer: Any, at: Any, count: Any, left: Any, right: Any) -> Any:
    """By element: ``left`` if its byte from ``at`` on is not zero, else ``right``, as after ``count`` bytes (not read)."""

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
    """Each element times ``kept`` if its word is at least ``threshold``, else zero. ``place``: the first's position."""

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
