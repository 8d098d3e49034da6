"""Generates LLVM IR for vectors of sixteen numbers.

``vectors`` and ``register_block`` turn it into functions for compiled kernels. Most kernels need only these functions.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.datamodel import models
from numba.core.datamodel.registry import register_default

LANES = 16
FLAGS = ("reassoc", "contract", "nsz", "arcp")
INT, HALF, BIT = ir.IntType(32), ir.IntType(16), ir.IntType(1)
INTS = ir.VectorType(INT, LANES)


class Vector(types.Type):
    """The type of a vector of ``dtype``, in numba's terms."""

    def __init__(self, dtype: Any) -> None:
        self.dtype = dtype
        super().__init__(name=f"vector({dtype})")


@register_default(Vector)
class _VectorModel(models.PrimitiveModel):
    def __init__(self, manager: Any, of: Vector) -> None:
        super().__init__(manager, of, ir.VectorType(scalar(of.dtype), LANES))


def scalar(dtype: Any) -> ir.Type:
    """The LLVM type of a number."""
    return ir.FloatType() if dtype == types.float32 else ir.DoubleType()


def constant(kind: ir.VectorType, value: Any) -> ir.Constant:
    """``value`` in every element."""
    return ir.Constant(kind, [value] * LANES)


def counting() -> ir.Constant:
    """0 to 15."""
    return ir.Constant(INTS, list(range(LANES)))


def spread_out(builder: Any, value: Any, kind: ir.VectorType) -> Any:
    """``value`` in every element."""
    one = builder.insert_element(ir.Constant(kind, ir.Undefined), value, INT(0))
    return builder.shuffle_vector(one, ir.Constant(kind, ir.Undefined), constant(INTS, 0))


def first_lanes(builder: Any, count: Any) -> Any:
    """The mask of the first ``count`` elements; ``count`` an int64, which may be below 0 or above 16."""
    low, high = count.type(0), count.type(LANES)
    count = builder.select(builder.icmp_signed("<", count, low), low, count)
    count = builder.select(builder.icmp_signed(">", count, high), high, count)
    return builder.icmp_unsigned("<", counting(), spread_out(builder, builder.trunc(count, INT), INTS))


def is_whole(builder: Any, count: Any) -> Any:
    """Whether ``count`` elements fill a vector."""
    return builder.icmp_signed(">=", count, count.type(LANES))


def vector_at(builder: Any, kind: Any, pointer: Any, at: Any) -> Any:
    """The address of a number, as a pointer to a vector."""
    where = builder.gep(pointer, [at], inbounds=True)
    return builder.bitcast(where, ir.VectorType(scalar(kind.dtype), LANES).as_pointer())


def number_size(kind: Any) -> int:
    """Size in bytes of a pointer's numbers."""
    return {types.uint16: 2, types.float32: 4}.get(kind.dtype, 8)


def widened(builder: Any, halves: Any) -> Any:
    """Convert sixteen bfloat16 numbers to fp32: bfloat16 is the upper half of fp32."""
    bits = builder.shl(builder.zext(halves, INTS), constant(INTS, 16))
    return builder.bitcast(bits, ir.VectorType(ir.FloatType(), LANES))


def called(builder: Any, name: str, result: ir.Type, *arguments: Any) -> Any:
    """A call of an LLVM intrinsic."""
    kind = ir.FunctionType(result, [a.type for a in arguments])
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, name), arguments)


def type_suffix(dtype: Any) -> str:
    """The type suffix of LLVM's intrinsics for such vectors."""
    return f"v{LANES}f{32 if dtype == types.float32 else 64}"


def masked_load(builder: Any, where: Any, mask: Any, size: int) -> Any:
    """Load the numbers of ``size`` bytes that the mask selects. The others are zero and are not read."""
    kind = where.type.pointee
    whole = isinstance(kind.element, ir.IntType)
    name = f"llvm.masked.load.v{LANES}{'i' if whole else 'f'}{8 * size}.p0"
    return called(builder, name, kind, where, INT(size), mask, constant(kind, 0 if whole else 0.0))


def masked_store(builder: Any, vector: Any, where: Any, mask: Any, size: int) -> None:
    """Store the numbers of ``size`` bytes that the mask selects."""
    called(builder, f"llvm.masked.store.v{LANES}f{8 * size}.p0", ir.VoidType(), vector, where, INT(size), mask)
