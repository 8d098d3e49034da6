"""Generates LLVM IR for vectors of sixteen numbers, or a multiple of sixteen.

``vectors`` and ``register_block`` turn it into functions for compiled kernels. Most kernels need only these functions.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.datamodel import models
from numba.core.datamodel.registry import register_default
from numba.extending import intrinsic

LANES = 16
FLAGS = ("reassoc", "contract", "nsz", "arcp")
INT, HALF, BIT = ir.IntType(32), ir.IntType(16), ir.IntType(1)
INTS = ir.VectorType(INT, LANES)


class Vector(types.Type):
    """The type of a vector of ``dtype``, in numba's terms."""

    def __init__(self, dtype: Any, lanes: int = LANES) -> None:
        self.dtype, self.lanes = dtype, lanes
        super().__init__(name=f"vector({dtype}, {lanes})")


@register_default(Vector)
class _VectorModel(models.PrimitiveModel):
    def __init__(self, manager: Any, of: Vector) -> None:
        super().__init__(manager, of, ir.VectorType(scalar(of.dtype), of.lanes))


def written(signature: Callable[..., Any]) -> Callable[[Callable[..., Any]], Any]:
    """Make a function for compiled code of one that writes its code: ``write(builder, *values)`` returns the result.

    ``signature`` of the arguments' types is numba's signature. A function without a result returns None.
    """

    def decorate(write: Callable[..., Any]) -> Any:
        @wraps(write)
        def declare(typing: Any, *kinds: Any) -> Any:
            def generate(context: Any, builder: Any, _signature: Any, values: Any) -> Any:
                found = write(builder, *values)
                return context.get_dummy_value() if found is None else found

            return signature(*kinds), generate

        return intrinsic(declare)

    return decorate


def scalar(dtype: Any) -> ir.Type:
    """The LLVM type of a number."""
    return ir.FloatType() if dtype == types.float32 else ir.DoubleType()


def constant(kind: ir.VectorType, value: Any) -> ir.Constant:
    """``value`` in every element."""
    return ir.Constant(kind, [value] * kind.count)


def counting() -> ir.Constant:
    """0 to 15."""
    return ir.Constant(INTS, list(range(LANES)))


def spread_out(builder: Any, value: Any, lanes: int = LANES) -> Any:
    """``value`` in every element."""
    undefined = ir.Constant(ir.VectorType(value.type, lanes), ir.Undefined)
    one = builder.insert_element(undefined, value, INT(0))
    return builder.shuffle_vector(one, undefined, constant(ir.VectorType(INT, lanes), 0))


def first_lanes(builder: Any, count: Any) -> Any:
    """The mask of the first ``count`` elements; ``count`` an int64, which may be below 0 or above 16."""
    low, high = count.type(0), count.type(LANES)
    count = builder.select(builder.icmp_signed("<", count, low), low, count)
    count = builder.select(builder.icmp_signed(">", count, high), high, count)
    return builder.icmp_unsigned("<", counting(), spread_out(builder, builder.trunc(count, INT)))


def is_whole(builder: Any, count: Any) -> Any:
    """Whether ``count`` elements fill a vector."""
    return builder.icmp_signed(">=", count, count.type(LANES))


def either(builder: Any, condition: Any, yes: Callable[[], list[Any]], no: Callable[[], list[Any]]) -> list[Any]:
    """The values of ``yes`` if the condition holds, else those of ``no``. Each writes the code of its own branch."""
    with builder.if_else(condition) as branches:
        ends = []
        for branch, write in zip(branches, (yes, no), strict=True):
            with branch:
                ends.append((write(), builder.block))
    found = [builder.phi(value.type) for value in ends[0][0]]
    for values, block in ends:
        for phi, value in zip(found, values, strict=True):
            phi.add_incoming(value, block)
    return found


def vector_at(builder: Any, pointer: Any, at: Any, lanes: int = LANES) -> Any:
    """The address of a number, as a pointer to a vector."""
    where = builder.gep(pointer, [at], inbounds=True)
    return builder.bitcast(where, ir.VectorType(pointer.type.pointee, lanes).as_pointer())


def number_size(vector: ir.VectorType) -> int:
    """Size in bytes of a vector's numbers."""
    number = vector.element
    return number.width // 8 if isinstance(number, ir.IntType) else 4 if number == ir.FloatType() else 8


def load_vector(builder: Any, where: Any) -> Any:
    """Load a vector, aligned like a number."""
    found = builder.load(where)
    found.align = number_size(found.type)
    return found


def store_vector(builder: Any, vector: Any, where: Any) -> None:
    """Store a vector, aligned like a number."""
    builder.store(vector, where).align = number_size(vector.type)


def widened(builder: Any, vector: Any) -> Any:
    """Convert bfloat16 numbers to fp32: bfloat16 is the upper half of fp32. Others stay what they are."""
    if vector.type.element != HALF:
        return vector
    ints = ir.VectorType(INT, vector.type.count)
    bits = builder.shl(builder.zext(vector, ints), constant(ints, 16))
    return builder.bitcast(bits, ir.VectorType(ir.FloatType(), vector.type.count))


def called(builder: Any, name: str, result: ir.Type, *arguments: Any, flags: tuple[str, ...] = ()) -> Any:
    """A call of an LLVM intrinsic."""
    kind = ir.FunctionType(result, [a.type for a in arguments])
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, name), arguments, fastmath=flags)


def type_suffix(kind: ir.VectorType) -> str:
    """The type suffix of LLVM's intrinsics for such vectors."""
    return f"v{kind.count}{'i' if isinstance(kind.element, ir.IntType) else 'f'}{8 * number_size(kind)}"


def masked_load(builder: Any, where: Any, mask: Any) -> Any:
    """Load the numbers that the mask selects. The others are zero and are not read."""
    kind = where.type.pointee
    nothing = constant(kind, 0 if isinstance(kind.element, ir.IntType) else 0.0)
    return called(
        builder, f"llvm.masked.load.{type_suffix(kind)}.p0", kind, where, INT(number_size(kind)), mask, nothing
    )


def masked_store(builder: Any, vector: Any, where: Any, mask: Any) -> None:
    """Store the numbers that the mask selects."""
    name, size = f"llvm.masked.store.{type_suffix(vector.type)}.p0", INT(number_size(vector.type))
    called(builder, name, ir.VoidType(), vector, where, size, mask)
