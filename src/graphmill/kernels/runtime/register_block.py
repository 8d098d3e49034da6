"""A block of a matrix product whose sums stay in registers, for code compiled by numba.

    six_by_four = register_block(6, 4)
    six_by_four((left, at, row, step), (right, beside, stride, terms), (start, from_, leap, begun), (out, to, pitch, count))

adds, for six rows r and four vectors of sixteen columns c,

    out[to + r · pitch + c] = Σ_t left[at + r · row + t · step] · right[beside + t · stride + c]

and, with ``begun``, ``start[from_ + r · leap + c]``. In the last vector, ``count`` columns of ``start`` are read and
``count`` columns are written, but all sixteen of ``right`` are read. ``left``, ``right``, ``start`` and ``out`` are
addresses (``vectors``), and offsets are counted in numbers.

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
from numba.extending import intrinsic

from graphmill.kernels.runtime.vector_code import (
    FLAGS,
    LANES,
    constant,
    first_lanes,
    is_whole,
    masked_load,
    masked_store,
    scalar,
    spread_out,
)

_INT64 = ir.IntType(64)


def register_block(rows: int, vectors: int) -> Any:
    """Make the function for blocks of this size."""

    def declare(typing: Any, left: Any, right: Any, start: Any, out: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            given = []
            for kind, value in zip(signature.args, values, strict=True):
                pointer, *places = cgutils.unpack_tuple(builder, value, len(kind.types))
                wanted = [types.boolean if of == types.boolean else types.intp for of in kind.types[1:]]
                parts = zip(places, kind.types[1:], wanted, strict=True)
                given.append([pointer, *(context.cast(builder, x, one, other) for x, one, other in parts)])
            _Block(builder, scalar(signature.args[0].types[0].dtype), rows, vectors).write(*given)
            return context.get_dummy_value()

        return types.void(left, right, start, out), generate

    return intrinsic(declare)


class _Block:
    """The code of one call."""

    def __init__(self, builder: Any, number: ir.Type, rows: int, vectors: int) -> None:
        self.builder, self.rows, self.vectors = builder, rows, vectors
        self.kind = ir.VectorType(number, LANES)
        self.size = 4 if number == ir.FloatType() else 8

    def write(self, of_left: list[Any], of_right: list[Any], of_start: list[Any], of_out: list[Any]) -> None:
        left, at, row, step = of_left
        right, beside, stride, terms = of_right
        out, to, pitch, count = of_out
        builder, kind = self.builder, self.kind
        mask = first_lanes(builder, count)
        start, from_, leap, begun = of_start
        begin = self._begin(start, from_, leap, begun, mask)
        entry = builder.block
        loop, done = builder.append_basic_block("terms"), builder.append_basic_block("summed")
        builder.cbranch(builder.icmp_signed(">", terms, _INT64(0)), loop, done)
        builder.position_at_end(loop)
        term = builder.phi(_INT64)
        sums = [builder.phi(kind) for _ in begin]
        across = [
            self._load(right, self._sum(beside, builder.mul(term, stride), LANES * v)) for v in range(self.vectors)
        ]
        here = builder.add(at, builder.mul(term, step))
        added = []
        for r in range(self.rows):
            place = builder.add(here, builder.mul(row, _INT64(r)))
            factor = spread_out(builder, builder.load(builder.gep(left, [place], inbounds=True)), kind)
            own = sums[r * self.vectors : (r + 1) * self.vectors]
            added += [self._with_product(total, factor, column) for total, column in zip(own, across, strict=True)]
        following = builder.add(term, _INT64(1))
        term.add_incoming(_INT64(0), entry)
        term.add_incoming(following, loop)
        for phi, first, later in zip(sums, begin, added, strict=True):
            phi.add_incoming(first, entry)
            phi.add_incoming(later, loop)
        builder.cbranch(builder.icmp_signed("<", following, terms), loop, done)
        builder.position_at_end(done)
        found = []
        for first, later in zip(begin, added, strict=True):
            phi = builder.phi(kind)
            phi.add_incoming(first, entry)
            phi.add_incoming(later, loop)
            found.append(phi)
        places = [
            self._place(out, self._sum(to, builder.mul(pitch, _INT64(r)), LANES * v))
            for r in range(self.rows)
            for v in range(self.vectors)
        ]
        last = range(self.vectors - 1, len(found), self.vectors)
        for i, (vector, place) in enumerate(zip(found, places, strict=True)):
            if i not in last:
                builder.store(vector, place).align = self.size
        # A masked store takes a dozen cycles on some processors.
        with builder.if_else(is_whole(builder, count)) as (whole, part):
            with whole:
                for i in last:
                    builder.store(found[i], places[i]).align = self.size
            with part:
                for i in last:
                    masked_store(builder, found[i], places[i], mask, self.size)

    def _with_product(self, total: Any, factor: Any, across: Any) -> Any:
        product = self.builder.fmul(factor, across, flags=FLAGS)
        return self.builder.fadd(total, product, flags=FLAGS)

    def _begin(self, start: Any, from_: Any, leap: Any, begun: Any, mask: Any) -> list[Any]:
        """The initial values of the sums."""
        builder, nothing, loaded = self.builder, constant(self.kind, 0.0), []
        with builder.if_else(builder.trunc(begun, ir.IntType(1)) if begun.type != ir.IntType(1) else begun) as (
            yes,
            no,
        ):
            with yes:
                for r in range(self.rows):
                    for v in range(self.vectors):
                        at = self._sum(from_, builder.mul(leap, _INT64(r)), LANES * v)
                        if v == self.vectors - 1:
                            loaded.append(masked_load(builder, self._place(start, at), mask, self.size))
                        else:
                            loaded.append(self._load(start, at))
                one = builder.block
            with no:
                other = builder.block
        out = []
        for value in loaded:
            phi = builder.phi(self.kind)
            phi.add_incoming(value, one)
            phi.add_incoming(nothing, other)
            out.append(phi)
        return out

    def _sum(self, place: Any, more: Any, constant_part: int) -> Any:
        return self.builder.add(self.builder.add(place, more), _INT64(constant_part))

    def _place(self, pointer: Any, at: Any) -> Any:
        return self.builder.bitcast(self.builder.gep(pointer, [at], inbounds=True), self.kind.as_pointer())

    def _load(self, pointer: Any, at: Any) -> Any:
        found = self.builder.load(self._place(pointer, at))
        found.align = self.size
        return found


@intrinsic
def transpose(typing: Any, source: Any, at: Any, row: Any, out: Any, to: Any, pitch: Any) -> Any:
    """Sixteen by sixteen numbers: out[to + c · pitch + r] = source[at + r · row + c]."""

    def generate(context: Any, builder: Any, _signature: Any, values: Any) -> Any:
        block = _Block(builder, scalar(source.dtype), LANES, 1)
        pointer, first, step, target, place, across = values
        rows = [block._load(pointer, builder.add(first, builder.mul(step, _INT64(r)))) for r in range(LANES)]
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
            stored = builder.store(vector, block._place(target, builder.add(place, builder.mul(across, _INT64(r)))))
            stored.align = block.size
        return context.get_dummy_value()

    i = types.intp
    return types.void(source, i, i, out, i, i), generate
