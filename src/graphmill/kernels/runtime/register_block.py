"""A block of a matrix product whose sums stay in registers, for code compiled by numba.

    six_rows = register_block(6, 4)
    out = (address, to, pitch, count)
    six_rows((left, at, row, step), (right, beside, stride, terms), (start, from_, leap, begun), out, wide)

adds, for six rows r and ``wide`` columns c (one to four vectors of sixteen),

    out[to + r · pitch + c] = Σ_t left[at + r · row + t · step] · right[beside + t · stride + c]

and, with ``begun``, ``start[from_ + r · leap + c]``. In the last vector, ``count`` columns of ``start`` are read and
``count`` columns are written, but all sixteen of ``right`` are read. ``left``, ``right``, ``start`` and ``out`` are
addresses (``vectors``), and offsets are counted in numbers.

With a fifth entry of ``out``, only so many rows are read and written, and only ``count`` columns of ``right`` are read.

The code is generated in LLVM IR, because in Python 24 sums of a loop would be 24 variables and 24 statements, for each
block size again. Six by four is what 32 registers of 512 bits hold beside the operands: each iteration has 24 fused
multiply-adds for ten loads, as many as a processor with two such units completes during the loads. Sixteen registers of
256 bits hold six by one, with twelve fused multiply-adds for eight loads.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils

from graphmill.kernels.runtime.vector_code import (
    FLAGS,
    LANES,
    constant,
    either,
    first_lanes,
    is_whole,
    load_vector,
    masked_load,
    masked_store,
    spread_out,
    store_vector,
    vector_at,
    written,
)

_INT64 = ir.IntType(64)


def register_block(rows: int, most: int) -> Any:
    """Make the function for blocks of so many rows and up to ``most`` vectors."""

    @written(lambda *operands: types.void(*map(_with_offsets, operands[:4]), types.intp))
    def block(builder: Any, left: Any, right: Any, start: Any, out: Any, wide: Any) -> None:
        operands = [cgutils.unpack_tuple(builder, each) for each in (left, right, start, out)]
        for vectors in range(1, most + 1):
            with builder.if_then(builder.icmp_signed("==", wide, _INT64(vectors * LANES))):
                _write(builder, rows, vectors, operands)

    return block


def _with_offsets(operand: Any) -> Any:
    """The type of an operand whose offsets are all int64: an address, offsets, and perhaps a boolean."""
    pointer, *others = operand.types
    return types.Tuple([pointer, *(of if of == types.boolean else types.intp for of in others)])


def _write(builder: Any, rows: int, vectors: int, operands: list[list[Any]]) -> None:
    """Write the code of one block."""
    of_left, of_right, of_start, of_out = operands
    (left, at, row, step), (right, beside, stride, terms) = of_left, of_right
    (start, from_, leap, begun), (out, to, pitch, count, *some) = of_start, of_out
    used = some[0] if some else _INT64(rows)
    kind, mask = ir.VectorType(left.type.pointee, LANES), first_lanes(builder, count)
    places = [(_INT64(r), _INT64(LANES * v), v == vectors - 1) for r in range(rows) for v in range(vectors)]

    def begin() -> list[Any]:
        found = []
        for r, column, last in places:
            where = vector_at(builder, start, _sum(builder, from_, builder.mul(leap, r), column))
            found.append(masked_load(builder, where, mask) if last else load_vector(builder, where))
        return found

    sums = either(builder, begun, begin, lambda: [constant(kind, 0.0)] * len(places))
    entry = builder.block
    loop, done = builder.append_basic_block("terms"), builder.append_basic_block("summed")
    builder.cbranch(builder.icmp_signed(">", terms, _INT64(0)), loop, done)
    builder.position_at_end(loop)
    term, running = builder.phi(_INT64), [builder.phi(kind) for _ in sums]
    across, next_row = [], builder.add(beside, builder.mul(term, stride))
    for _, column, last in places[:vectors]:
        where = vector_at(builder, right, builder.add(next_row, column))
        across.append(masked_load(builder, where, mask) if some and last else load_vector(builder, where))
    here, added = builder.add(at, builder.mul(term, step)), []
    for r in range(rows):
        # Rows after the last repeat the last one.
        number = builder.select(builder.icmp_signed("<", _INT64(r), used), _INT64(r), builder.sub(used, _INT64(1)))
        place = builder.add(here, builder.mul(row, number))
        factor = spread_out(builder, builder.load(builder.gep(left, [place], inbounds=True)))
        own = running[r * vectors : (r + 1) * vectors]
        for total, column in zip(own, across, strict=True):
            added.append(builder.fadd(total, builder.fmul(factor, column, flags=FLAGS), flags=FLAGS))
    following = builder.add(term, _INT64(1))
    term.add_incoming(_INT64(0), entry)
    term.add_incoming(following, loop)
    builder.cbranch(builder.icmp_signed("<", following, terms), loop, done)
    builder.position_at_end(done)
    found = [builder.phi(kind) for _ in sums]
    for phi, after, first, later in zip(running, found, sums, added, strict=True):
        for each in (phi, after):
            each.add_incoming(first, entry)
            each.add_incoming(later, loop)
    ends = []
    for vector, (r, column, last) in zip(found, places, strict=True):
        where = vector_at(builder, out, _sum(builder, to, builder.mul(pitch, r), column))
        there = builder.icmp_signed("<", r, used)
        if last:
            ends.append((vector, where, there))
        else:
            with builder.if_then(there):
                store_vector(builder, vector, where)
    # A masked store takes a dozen cycles on some processors.
    with builder.if_else(is_whole(builder, count)) as (whole, part):
        with whole:
            for vector, where, there in ends:
                with builder.if_then(there):
                    store_vector(builder, vector, where)
        with part:
            for vector, where, there in ends:
                with builder.if_then(there):
                    masked_store(builder, vector, where, mask)


def _sum(builder: Any, place: Any, more: Any, constant_part: Any) -> Any:
    return builder.add(builder.add(place, more), constant_part)


@written(lambda source, at, row, out, to, pitch: types.void(source, *[types.intp] * 2, out, *[types.intp] * 2))
def transpose(builder: Any, source: Any, at: Any, row: Any, out: Any, to: Any, pitch: Any) -> None:
    """Sixteen by sixteen numbers: out[to + c · pitch + r] = source[at + r · row + c]."""
    first = [builder.add(at, builder.mul(row, _INT64(r))) for r in range(LANES)]
    rows = [load_vector(builder, vector_at(builder, source, place)) for place in first]
    lanes = ir.VectorType(ir.IntType(32), LANES)
    for distance in (8, 4, 2, 1):
        # Swap the upper part of one row with the lower part of another, in parts of ``distance``.
        low = [i if not i & distance else LANES + i - distance for i in range(LANES)]
        high = [i + distance if not i & distance else LANES + i for i in range(LANES)]
        for i in range(LANES):
            if not i & distance:
                pair = rows[i], rows[i + distance]
                rows[i] = builder.shuffle_vector(*pair, ir.Constant(lanes, low))
                rows[i + distance] = builder.shuffle_vector(*pair, ir.Constant(lanes, high))
    for r, vector in enumerate(rows):
        store_vector(builder, vector, vector_at(builder, out, builder.add(to, builder.mul(pitch, _INT64(r)))))
