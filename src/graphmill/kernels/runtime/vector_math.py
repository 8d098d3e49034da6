"""Functions of vectors of sixteen numbers (``vectors``) other than + - * /: sums, comparisons, selections, e^x, masks."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types

from graphmill.kernels.runtime.compiled_math import EXP_FLOAT32
from graphmill.kernels.runtime.vector_code import (
    BIT,
    FLAGS,
    INT,
    INTS,
    called,
    constant,
    counting,
    first_lanes,
    masked_load,
    spread_out,
    type_suffix,
    vector_at,
    written,
)
from graphmill.kernels.runtime.vector_code import (
    LANES as LANES,
)
from graphmill.kernels.runtime.words import WORD_CONSTANTS


def _same(vector: Any, *others: Any) -> Any:
    """The signature of a function of vectors of one type."""
    return vector(vector, *others)


def _chosen(condition: Any, left: Any, right: Any) -> Any:
    """The signature of a choice between two vectors."""
    return left(condition, left, right)


@written(_same)
def larger(builder: Any, left: Any, right: Any) -> Any:
    """The larger of the two, by element; ``right`` where ``left`` is NaN."""
    return builder.select(builder.fcmp_ordered(">", left, right), left, right)


@written(_same)
def unless_finite(builder: Any, vector: Any, before: Any) -> Any:
    """By element: ``before``, or NaN if ``vector`` is infinite or NaN; one instruction, where a comparison takes three."""
    # Only this multiplication and addition may be fused: (x + y) · 0 instead of x · 0 + y · 0 could overflow.
    none = builder.fmul(vector, constant(vector.type, 0.0), flags=("contract",))
    return builder.fadd(none, before, flags=("contract",))


def _as_bits(operation: str) -> Any:
    @written(lambda vector, number: types.int64(vector, vector.dtype))
    def bits(builder: Any, vector: Any, number: Any) -> Any:
        lanes = vector.type.count
        true = builder.fcmp_ordered(operation, vector, spread_out(builder, number, lanes))
        return builder.zext(builder.bitcast(true, ir.IntType(lanes)), ir.IntType(64))

    return bits


# The elements that are at least (or above) a number, as bits of an integer; the first element is the lowest bit.
reaching, exceeding = _as_bits(">="), _as_bits(">")


@written(lambda bits: types.int64(types.int64))
def lowest_bit(builder: Any, bits: Any) -> Any:
    """The position of the lowest set bit; at least one must be set."""
    return called(builder, "llvm.cttz.i64", ir.IntType(64), bits, BIT(1))


@written(lambda bits: types.int64(types.int64))
def count_bits(builder: Any, bits: Any) -> Any:
    """The number of set bits."""
    return called(builder, "llvm.ctpop.i64", ir.IntType(64), bits)


@written(_same)
def above(builder: Any, left: Any, right: Any) -> Any:
    """By element: 1 where ``left`` is above ``right``, else 0."""
    return builder.select(builder.fcmp_ordered(">", left, right), constant(left.type, 1.0), constant(left.type, 0.0))


def _of_each(join: Any) -> Any:
    """Fold the halves of two vectors into one vector, and so on: a third of the instructions of sixteen reductions."""

    @written(lambda vectors: vectors.dtype(vectors))
    def folded(builder: Any, vectors: Any) -> Any:
        rest, half = [builder.extract_value(vectors, i) for i in range(LANES)], LANES // 2
        while half:
            low = [i for i in range(2 * LANES) if i % (2 * half) < half]
            lower, upper = (ir.Constant(INTS, [i + shift for i in low]) for shift in (0, half))
            pairs = zip(rest[::2], rest[1::2], strict=True)
            rest = [join(builder, *(builder.shuffle_vector(*pair, mask) for mask in (lower, upper))) for pair in pairs]
            half //= 2
        return rest[0]

    return folded


def _higher(builder: Any, one: Any, other: Any) -> Any:
    return builder.select(builder.fcmp_ordered(">", one, other, flags=("nnan", "nsz")), one, other)


# The highest number, or the sum, of each of sixteen vectors, as one vector.
highest_of_each = _of_each(_higher)
total_of_each = _of_each(lambda builder, one, other: builder.fadd(one, other, flags=FLAGS))


def _positive(builder: Any, vector: Any) -> Any:
    return builder.fcmp_ordered(">", vector, constant(vector.type, 0.0))


@written(_chosen)
def where_positive(builder: Any, vector: Any, left: Any, right: Any) -> Any:
    """By element: ``left`` where ``vector`` is above zero, else ``right``."""
    return builder.select(_positive(builder, vector), left, right)


@written(lambda vector: types.uint16(vector))
def positive_bits(builder: Any, vector: Any) -> Any:
    """One bit per element, the first one lowest: whether it is above zero."""
    return builder.bitcast(_positive(builder, vector), ir.IntType(LANES))


@written(lambda bits, left, right: left(types.uint16, left, right))
def where_bits(builder: Any, bits: Any, left: Any, right: Any) -> Any:
    """By element: ``left`` if its bit is set, else ``right``."""
    return builder.select(builder.bitcast(bits, ir.VectorType(BIT, LANES)), left, right)


@written(lambda vector, count, other: vector(vector, types.intp, other))
def first_of(builder: Any, vector: Any, count: Any, other: Any) -> Any:
    """The first ``count`` elements of ``vector``, then those of ``other``."""
    return builder.select(first_lanes(builder, count), vector, other)


@written(lambda pointer, at, count, left, right: left(pointer, types.intp, types.intp, left, right))
def where_set(builder: Any, pointer: Any, at: Any, count: Any, left: Any, right: Any) -> Any:
    """By element: ``left`` if its byte from ``at`` on is not zero, else ``right``, as after ``count`` bytes (not read)."""
    found = masked_load(builder, vector_at(builder, pointer, at), first_lanes(builder, count))
    return builder.select(builder.icmp_unsigned("!=", found, constant(found.type, 0)), left, right)


def _reduction(name: str, flags: tuple[str, ...], *start: float) -> Any:
    @written(lambda vector: vector.dtype(vector))
    def reduce(builder: Any, vector: Any) -> Any:
        number = vector.type.element
        full = f"llvm.vector.reduce.{name}.{type_suffix(vector.type)}"
        return called(builder, full, number, *map(number, start), vector, flags=flags)

    return reduce


total = _reduction("fadd", FLAGS, 0.0)
highest = _reduction("fmax", ("nnan", "nsz"))


@written(_same)
def exponential(builder: Any, x: Any) -> Any:
    """e^x by element: in fp32 the polynomial of ``compiled_math``, for x up to 88; in float64 the library's."""
    kind = x.type
    if kind.element == ir.DoubleType():
        return called(builder, f"llvm.exp.{type_suffix(kind)}", kind, x)
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


@written(lambda vector, *numbers: vector(vector, types.intp, *[types.uint32] * 3, vector.dtype))
def keep(builder: Any, vector: Any, place: Any, low: Any, high: Any, threshold: Any, kept: Any) -> Any:
    """Each element times ``kept`` if its word is at least ``threshold``, else zero. ``place``: the first's position."""
    low, high, threshold, kept = (spread_out(builder, n) for n in (low, high, threshold, kept))
    first, second, third = (constant(INTS, int(c)) for c in WORD_CONSTANTS)

    def mixed(x: Any, by: int) -> Any:
        return builder.xor(x, builder.lshr(x, constant(INTS, by)))

    x = builder.add(spread_out(builder, builder.trunc(place, INT)), counting())
    x = mixed(builder.add(builder.mul(x, first), low), 16)
    x = mixed(builder.xor(builder.mul(x, second), high), 15)
    x = mixed(builder.mul(x, third), 16)
    scaled = builder.fmul(vector, kept, flags=FLAGS)
    return builder.select(builder.icmp_unsigned(">=", x, threshold), scaled, constant(vector.type, 0.0))
