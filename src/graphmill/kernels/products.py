"""Matrix products: torch's, by the library that is faster on this processor.

On CPUs, torch passes fp32 products to Intel's MKL, which on AMD's processors uses half of the vector registers' width. torch
also ships oneDNN, which uses all of it: on a fifth-generation EPYC (Zen 5) it multiplies twice as many numbers per second.
On Intel's processors MKL is as fast. The choice depends only on the processor and the operands' sizes, so that a resumed
training gives the same bits.

On CPUs without bfloat16 instructions, torch's bfloat16 products take several times as long as fp32 ones; on some with
them, they are slower, too (:func:`multiplies_bfloat16`). There the operands are converted to fp32 in blocks that fit
the cache, and multiplied as fp32: the same sums, rounded once.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from graphmill.kernels.runtime.processor import multiplies_bfloat16 as multiplies_bfloat16
from graphmill.kernels.runtime.processor import onednn_is_faster as onednn_is_faster

_LEAST_WORK = 1 << 18
"""With fewer multiplications, the call itself takes most of the time."""
_ONEDNN_WORK = 1 << 26
"""oneDNN makes code for every new shape, in about a millisecond: with fewer multiplications that is what it would save. Of
batches of sequences and of sampled neighbourhoods nearly every one has a new number of rows."""
_LEAST_ROWS, _LEAST_COLUMNS = 6, 12
"""Narrower results leave most of a processor's registers empty."""
_BLOCK_ROWS = 1024
"""Number of rows, or of terms, that are converted to fp32 at a time."""


def product(left: Tensor, right: Tensor, bias: Tensor | None = None, *, out: Tensor | None = None) -> Tensor:
    """left · right (+ ``bias`` [m]): [n, k] · [k, m] → [n, m], with any strides.

    If a gradient is needed, torch computes it; :func:`linear` has its own gradient. ``out`` must not share memory with
    the others.
    """
    if not _needs_gradient(left, right, bias) and _onednn_serves(left, right, out, bias):
        result: Tensor = torch.ops.mkldnn._linear_pointwise(left, right.T, bias, "none", [], "")
        return result if out is None else out.copy_(result)
    if _widened(left, right, out, bias):
        return product_in_fp32(left, right, bias, left.dtype, out=out)
    if bias is None:
        return torch.matmul(left, right) if out is None else torch.matmul(left, right, out=out)
    if left.device.type != "cpu" or left.dtype.itemsize < 4:
        return torch.addmm(bias, left, right) if out is None else torch.addmm(bias, left, right, out=out)
    # Faster on a CPU than addmm, which first writes the bias into every row.
    return torch.matmul(left, right, out=out).add_(bias)


def add_product_(out: Tensor, left: Tensor, right: Tensor) -> Tensor:
    """``out`` [n, m] += left [n, k] · right [k, m]. See :func:`product`."""
    if not _needs_gradient(left, right) and _onednn_serves(left, right, out):
        return out.add_(product(left, right))
    return out.addmm_(left, right)


def product_in_fp32(
    left: Tensor, right: Tensor, bias: Tensor | None, dtype: torch.dtype, *, out: Tensor | None = None
) -> Tensor:
    """left · right (+ ``bias``) of [n, k] and [k, m] in fp32 or bfloat16, multiplied in fp32, the result in ``dtype``.

    The longest of n, k and m is processed in blocks, so that only a block and the smaller operand are copied to fp32.
    It has no gradient.
    """
    (rows, terms), columns = left.shape, right.shape[1]
    out = left.new_empty(rows, columns, dtype=dtype) if out is None else out
    added = None if bias is None else bias.float()
    longest = max(rows, terms, columns)
    parts = [slice(first, first + _BLOCK_ROWS) for first in range(0, longest, _BLOCK_ROWS)]
    if rows == longest:
        whole = right.float()
        for part in parts:
            out[part] = product(left[part].float(), whole, added)
    elif columns == longest:
        whole = left.float()
        for part in parts:
            out[:, part] = product(whole, right[:, part].float(), None if added is None else added[part])
    else:
        sums = left.new_zeros(rows, columns, dtype=torch.float32)
        for part in parts:
            add_product_(sums, left[:, part].float(), right[part].float())
        out.copy_(sums if added is None else sums.add_(added))
    return out


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x Wᵀ + b, once differentiable: x [n, in], weight [out, in] with any strides, bias [out]."""
    if _low_autocast(x):
        result: Tensor = _LowLinear.apply(x if x.dim() == 2 else x.flatten(0, -2), weight, bias)
        return result if x.dim() == 2 else result.unflatten(0, x.shape[:-1])
    if x.dim() != 2 or not _onednn_serves(x, weight.T, None, bias):
        return F.linear(x, weight, bias)
    return _Linear.apply(x, weight, bias)


def gelu_linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """gelu(x) Wᵀ + b: x [n, in], weight [out, in], bias [out], all in x's precision. Saves x only; gelu is recomputed."""
    return _GeluLinear.apply(x, weight.to(x.dtype), bias.to(x.dtype))


class Linear(nn.Linear):
    """``nn.Linear`` that uses :func:`linear`."""

    def forward(self, x: Tensor) -> Tensor:
        """[n, in] → [n, out]."""
        return linear(x, self.weight, self.bias)


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        # Save x only if the weight needs a gradient, and the weight only if x does.
        needs_x, needs_weight = ctx.needs_input_grad[:2]
        ctx.save_for_backward(x if needs_weight else None, weight if needs_x else None)
        return product(x, weight.T, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        return (
            None if weight is None else product(gradient, weight),
            None if x is None else product(gradient.T, x),
            gradient.sum(0) if ctx.needs_input_grad[2] else None,
        )


class _GeluLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        with torch.autocast(x.device.type, enabled=False):
            return product(F.gelu(x), weight.T, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x, weight = ctx.saved_tensors
        with torch.autocast(x.device.type, enabled=False):
            d_weight = product(d_y.mT, F.gelu(x))
            return torch.ops.aten.gelu_backward(product(d_y, weight), x), d_weight, d_y.sum(0)


class _LowLinear(torch.autograd.Function):
    """A linear map under autocast to bfloat16, for processors that do not multiply bfloat16 faster than fp32."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        needs_x, needs_weight = ctx.needs_input_grad[:2]
        low, low_weight = x.to(torch.bfloat16), weight.to(torch.bfloat16)
        ctx.save_for_backward(low if needs_weight else None, low_weight if needs_x else None)
        ctx.kinds = x.dtype, weight.dtype, None if bias is None else bias.dtype
        with torch.autocast("cpu", enabled=False):
            return product_in_fp32(low, low_weight.T, bias, torch.bfloat16)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        (x, weight), kinds = ctx.saved_tensors, ctx.kinds
        with torch.autocast("cpu", enabled=False):
            return (
                None if weight is None else product_in_fp32(gradient, weight, None, kinds[0]),
                None if x is None else product_in_fp32(gradient.T, x, None, kinds[1]),
                gradient.sum(0, dtype=kinds[2]) if ctx.needs_input_grad[2] else None,
            )


def _low_autocast(x: Tensor) -> bool:
    """Whether autocast would compute a linear map of ``x`` in bfloat16, and this processor is slow at it."""
    return (
        x.device.type == "cpu"
        and x.dim() > 1
        and x.dtype in (torch.float32, torch.bfloat16)
        and not torch.compiler.is_compiling()
        and torch.is_autocast_enabled("cpu")
        and torch.get_autocast_dtype("cpu") == torch.bfloat16
        and not multiplies_bfloat16()
    )


def _widened(left: Tensor, right: Tensor, out: Tensor | None, bias: Tensor | None) -> bool:
    """Whether to compute a bfloat16 product in fp32."""
    return (
        left.dtype == right.dtype == torch.bfloat16
        and left.device.type == "cpu"
        and left.dim() == right.dim() == 2
        and left.shape[1] == right.shape[0]
        and left.numel() * right.shape[1] >= _LEAST_WORK
        and (out is None or (out.dtype == left.dtype and out.shape == (left.shape[0], right.shape[1])))
        and not torch.compiler.is_compiling()
        and not _needs_gradient(left, right, bias)
        and not multiplies_bfloat16()
    )


def _needs_gradient(*tensors: Tensor | None) -> bool:
    return torch.is_grad_enabled() and any(t.requires_grad for t in tensors if t is not None)


def _onednn_serves(left: Tensor, right: Tensor, out: Tensor | None, bias: Tensor | None = None) -> bool:
    """Whether oneDNN computes the product. Mismatched shapes go to torch's own operator, which raises for them."""
    if torch.compiler.is_compiling() or left.dim() != 2 or right.dim() != 2:
        return False
    (rows, terms), (inner, columns) = left.shape, right.shape
    return (
        left.dtype == right.dtype == torch.float32
        and left.device.type == "cpu"
        and rows >= _LEAST_ROWS
        and columns >= _LEAST_COLUMNS
        and left.numel() * columns >= _ONEDNN_WORK
        and onednn_is_faster()
        and terms == inner
        and (out is None or (out.dtype == torch.float32 and out.shape == (rows, columns)))
        and (bias is None or (bias.dtype == torch.float32 and bias.shape == (columns,) and bias.stride(0) == 1))
        and not torch.is_autocast_enabled("cpu")
    )
