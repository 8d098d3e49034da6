"""Small matrix products for code compiled by numba, made of pairs of bfloat16 where the processor is faster at these.

    times(kind, left, at, matrix, of_matrix, low, of_low, room, out, to, rows, width, line)
        out[to + r · line + c] = Σ_t left[at + r · line + t] · matrix[of_matrix + t · line + c]
    add_gradient(kind, left, at, right, beside, room, out, to, rows, width, line)
        out[to + i · line + c] += Σ_r left[at + r · line + i] · right[beside + r · line + c]

Both sides are fp32 (or float64) in memory. ``kind`` is an array of the kind of numbers that a calculation reads from its
tables: of uint16 (bfloat16) both sides are rounded to that here, and a product of two pairs is one instruction that adds to
fp32 (``vdpbf16ps``); of any other kind :func:`products_numba.whole_blocks` makes the product. ``low`` [``low_size``] has the
matrix in pairs, by :func:`pack`; ``room`` [``room_size``] is for operands in pairs.

AMD's processors start as many products of pairs a cycle as of single numbers, so that they take half the time; Intel's start
half as many (``products.multiplies_bfloat16``), and go without.
"""

from __future__ import annotations

from typing import Any

from llvmlite import binding, ir
from numba import config, types
from numba.extending import intrinsic, overload

from graphmill.kernels.products_numba import SIX, whole_blocks
from graphmill.kernels.runtime.compiled_math import FAST
from graphmill.kernels.runtime.jit import jit
from graphmill.kernels.runtime.register_block import pair_block
from graphmill.kernels.runtime.vector_code import LANES, low_bits, place_of
from graphmill.kernels.runtime.vectors import like, load, padded, spread

_jit = jit(nogil=True, fastmath=FAST, error_model="numpy")
TOGETHER = 8 * SIX
"""Rows that go through together: targets, and sources that are multiplied."""
PANEL = 4 * LANES
"""Columns of a block of registers, at most."""
_INTS = ir.VectorType(ir.IntType(32), LANES)

_six_by_four, _six_by_three = pair_block(6, 4), pair_block(6, 3)
_six_by_two, _six_by_one = pair_block(6, 2), pair_block(6, 1)


def multiplies_pairs() -> bool:
    """Whether this processor has products of pairs that are faster than those of single numbers, and LLVM their types.

    Not where numba is told to compile for another processor.
    """
    if binding.llvm_version_info[0] < 16 or config.CPU_NAME or config.CPU_FEATURES or not config.ENABLE_AVX:
        return False
    return bool(binding.get_host_cpu_features().get("avx512bf16")) and binding.get_host_cpu_name().startswith("znver")


PAIRS = multiplies_pairs()


@jit
def low_size(width: int) -> int:
    """Numbers of 32 bits that a matrix takes in pairs."""
    return (width + 1) // 2 * padded(width)


@jit
def room_size(width: int) -> int:
    """Numbers of 32 bits that both sides of a product take in pairs."""
    return 2 * (TOGETHER + SIX) * padded(width)


@intrinsic
def store_pairs(typing: Any, pointer: Any, at: Any, even: Any, odd: Any) -> Any:
    """Sixteen pairs of two vectors' numbers in bfloat16, the first one's in the lower halves."""

    def generate(context: Any, builder: Any, _signature: Any, values: Any) -> Any:
        low, high = (builder.zext(low_bits(builder, v), _INTS) for v in values[2:])
        both = builder.or_(low, builder.shl(high, ir.Constant(_INTS, [16] * LANES)))
        builder.store(both, place_of(builder, values[0], values[1], _INTS)).align = 4
        return context.get_dummy_value()

    return types.void(pointer, types.intp, even, odd), generate


@intrinsic
def store_low(typing: Any, pointer: Any, at: Any, vector: Any) -> Any:
    """A vector's numbers in bfloat16, side by side: eight pairs."""

    def generate(context: Any, builder: Any, _signature: Any, values: Any) -> Any:
        found = low_bits(builder, values[2])
        builder.store(found, place_of(builder, values[0], values[1], found.type)).align = 4
        return context.get_dummy_value()

    return types.void(pointer, types.intp, vector), generate


@_jit
def _pair_rows(source, at, rows, width, line, out, to):  # type: ignore[no-untyped-def]
    """Two rows' numbers of a column side by side; behind an odd number of rows there are zeros."""
    nothing = spread(like(source[at], 0))
    for r in range(0, rows, 2):
        for c in range(0, width, LANES):
            odd = load(source, at + (r + 1) * line + c) if r + 1 < rows else nothing
            store_pairs(out, to + r // 2 * line + c, load(source, at + r * line + c), odd)


@_jit
def six_rows(left, at, row, step, right, beside, stride, wide, pairs, out, to, pitch, onto):  # type: ignore[no-untyped-def]
    """Six rows of ``left`` times ``wide`` columns, a panel or whole vectors of one: ``register_block.pair_block``."""
    if wide == 4 * LANES:
        _six_by_four(left, at, row, step, right, beside, stride, pairs, out, to, pitch, onto)
    elif wide == 3 * LANES:
        _six_by_three(left, at, row, step, right, beside, stride, pairs, out, to, pitch, onto)
    elif wide == 2 * LANES:
        _six_by_two(left, at, row, step, right, beside, stride, pairs, out, to, pitch, onto)
    else:
        _six_by_one(left, at, row, step, right, beside, stride, pairs, out, to, pitch, onto)


@_jit
def _blocks(left, row, step, right, pairs, onto, out, to, pitch, rows, columns, line):  # type: ignore[no-untyped-def]
    """As :func:`products_numba.whole_blocks`, of pairs."""
    for c in range(0, columns, PANEL):
        wide = padded(min(PANEL, columns - c))
        for r in range(0, rows, SIX):
            six_rows(left, r * row, row, step, right, c, line, wide, pairs, out, to + r * pitch + c, pitch, onto)


@_jit
def _low_times(left, at, low, room, out, to, rows, width, line):  # type: ignore[no-untyped-def]
    half = line // 2
    for start in range(0, rows, TOGETHER):
        size = min(TOGETHER, rows - start)
        for r in range(size):
            for c in range(0, width, LANES):
                store_low(room, r * half + c // 2, load(left, at + (start + r) * line + c))
        _blocks(room, half, 1, low, (width + 1) // 2, False, out, to + start * line, line, size, width, line)


@_jit
def _low_gradient(left, at, right, beside, room, other, out, to, rows, width, line):  # type: ignore[no-untyped-def]
    for start in range(0, rows, TOGETHER):
        size = min(TOGETHER, rows - start)
        _pair_rows(left, at + start * line, size, width, line, room, 0)
        _pair_rows(right, beside + start * line, size, width, line, other, 0)
        _blocks(room, 1, line, other, (size + 1) // 2, True, out, to, line, width, width, line)


@intrinsic
def behind(typing: Any, pointer: Any, at: Any) -> Any:
    """The address of a number."""

    def generate(_context: Any, builder: Any, _signature: Any, values: Any) -> Any:
        return builder.gep(values[0], [values[1]], inbounds=True)

    return pointer(pointer, types.intp), generate


def _is_low(kind: Any, table: Any) -> bool:
    return PAIRS and kind.dtype == types.uint16 and table.dtype == types.float32


def pack(kind: Any, matrix: Any, at: Any, low: Any, to: Any, width: Any, line: Any) -> None:
    """The matrix [width, width] at ``at`` in pairs, where products are made of these."""
    raise NotImplementedError("compiled code only")  # numba puts the overload below in its place


@overload(pack)
def _pack(kind, matrix, at, low, to, width, line):  # type: ignore[no-untyped-def]
    if _is_low(kind, matrix):
        return lambda kind, matrix, at, low, to, width, line: _pair_rows(matrix, at, width, width, line, low, to)
    return lambda kind, matrix, at, low, to, width, line: None


def times(
    kind: Any, left: Any, at: Any, matrix: Any, of_matrix: Any, low: Any, of_low: Any, room: Any, out: Any, to: Any,
    rows: Any, width: Any, line: Any,
) -> None:  # fmt: skip
    """Rows times a matrix; see above."""
    raise NotImplementedError("compiled code only")  # numba puts the overload below in its place


@overload(times)
def _times(kind, left, at, matrix, of_matrix, low, of_low, room, out, to, rows, width, line):  # type: ignore[no-untyped-def]
    if _is_low(kind, left):

        def of_pairs(kind, left, at, matrix, of_matrix, low, of_low, room, out, to, rows, width, line):  # type: ignore[no-untyped-def]
            _low_times(left, at, behind(low, of_low), room, out, to, rows, width, line)

        return of_pairs

    def plain(kind, left, at, matrix, of_matrix, low, of_low, room, out, to, rows, width, line):  # type: ignore[no-untyped-def]
        whole_blocks(left, at, line, 1, matrix, of_matrix, line, width, False, out, to, line, rows, width)

    return plain


def add_gradient(
    kind: Any,
    left: Any,
    at: Any,
    right: Any,
    beside: Any,
    room: Any,
    out: Any,
    to: Any,
    rows: Any,
    width: Any,
    line: Any,
) -> None:
    """A matrix's gradient from rows before it and gradients behind it; see above."""
    raise NotImplementedError("compiled code only")  # numba puts the overload below in its place


@overload(add_gradient)
def _add_gradient(kind, left, at, right, beside, room, out, to, rows, width, line):  # type: ignore[no-untyped-def]
    if _is_low(kind, left):

        def of_pairs(kind, left, at, right, beside, room, out, to, rows, width, line):  # type: ignore[no-untyped-def]
            other = behind(room, (TOGETHER + SIX) * line)
            _low_gradient(left, at, right, beside, room, other, out, to, rows, width, line)

        return of_pairs

    def plain(kind, left, at, right, beside, room, out, to, rows, width, line):  # type: ignore[no-untyped-def]
        whole_blocks(left, at, 1, line, right, beside, line, rows, True, out, to, line, width, width)

    return plain
