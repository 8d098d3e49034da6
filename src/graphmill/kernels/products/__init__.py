"""Matrix products: torch's, or our own where torch's library is the slower one.

On CPUs torch hands products of fp32 to Intel's MKL, which on processors of another make uses half of their vector registers'
width. There, ``products.cpu`` makes mostly a little over twice as many products a second where the units are as wide as
the registers (AMD's Zen 5), a sixth more where they are half as wide (Zen 4); on Intel's, MKL is as fast. The choice hangs
on the processor and the operands' sizes alone, so that a training that is resumed goes on with the same bits.

On CPUs without instructions for bfloat16 torch's products of it take several times as long as those of fp32, and on some
that have them longer, too (:func:`multiplies_bfloat16`). There its operands are converted, a block that stays in the cache
at a time, and multiplied as fp32: the same sums, rounded once.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from graphmill.kernels.runtime.processor import multiplies_bfloat16 as multiplies_bfloat16
from graphmill.kernels.runtime.processor import own_blocks as own_blocks
from graphmill.kernels.runtime.processor import own_products as own_products

_LEAST_WORK = 1 << 18
"""Multiplications under which the call itself is what takes the time."""
_LEAST_ROWS, _LEAST_COLUMNS = 6, 12
"""The size of a block in registers, more or less: narrower results leave most of it empty."""
_BLOCK_ROWS = 1024
"""Rows, or terms, that are converted to fp32 at a time."""


def product(left: Tensor, right: Tensor, bias: Tensor | None = None, *, out: Tensor | None = None) -> Tensor:
    """left · right (+ ``bias`` [m]): [n, k] · [k, m], or [h, n, k] · [h, k, m] without ``bias``, with any strides.

    Differentiated through, it is torch's: :func:`linear` has a gradient of its own. ``out`` shares no memory with
    the others.
    """
    if not _own(left, right, out, bias):
        if _widened(left, right, out, bias):
            return product_in_fp32(left, right, bias, left.dtype, out=out)
        if bias is None:
            return torch.matmul(left, right) if out is None else torch.matmul(left, right, out=out)
        if left.device.type != "cpu" or left.dtype.itemsize < 4:
            return torch.addmm(bias, left, right) if out is None else torch.addmm(bias, left, right, out=out)
        # On a CPU faster than addmm, which writes the bias into every row before it multiplies.
        return torch.matmul(left, right, out=out).add_(bias)
    from graphmill.kernels.products import cpu as products_cpu

    out = left.new_empty(*left.shape[:-1], right.shape[-1]) if out is None else out
    products_cpu.product_(out, left, right, bias, False)
    return out


def add_product_(out: Tensor, left: Tensor, right: Tensor) -> Tensor:
    """``out`` += left · right, matrices or batches of them. See :func:`product`."""
    if not _own(left, right, out):
        return out.addmm_(left, right) if out.dim() == 2 else out.baddbmm_(left, right)
    from graphmill.kernels.products import cpu as products_cpu

    products_cpu.product_(out, left, right, None, True)
    return out


def product_in_fp32(
    left: Tensor, right: Tensor, bias: Tensor | None, dtype: torch.dtype, *, out: Tensor | None = None
) -> Tensor:
    """left · right (+ ``bias``) of [n, k] and [k, m] in fp32 or bfloat16, multiplied in fp32, the result in ``dtype``.

    The longest of n, k and m goes through in blocks, so that the copies in fp32 are of a block and of the smaller operand.
    Without gradients.
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
    """x Wᵀ + b, differentiable (once): x [n, in], weight [out, in] with any strides, bias [out]."""
    if _low_autocast(x):
        found: Tensor = _LowLinear.apply(x if x.dim() == 2 else x.flatten(0, -2), weight, bias)
        return found if x.dim() == 2 else found.unflatten(0, x.shape[:-1])
    if x.dim() != 2 or not _serves(x, weight.T, None, bias):
        return F.linear(x, weight, bias)
    found = _Linear.apply(x, weight, bias)
    return found


class Linear(nn.Linear):
    """``nn.Linear`` by :func:`linear`."""

    def forward(self, x: Tensor) -> Tensor:
        """[n, in] → [n, out]."""
        return linear(x, self.weight, self.bias)


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        # A weight that stays as it is does not need what it is multiplied with, and the other way round.
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


class _LowLinear(torch.autograd.Function):
    """What autocast to bfloat16 makes of a linear map, where the processor is not faster at its products."""

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
    """Whether a linear map of ``x`` is now one that autocast would make in bfloat16, which this processor is slow at."""
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
    """Whether a product of bfloat16 is to be made in fp32."""
    return (
        left.dtype == right.dtype == torch.bfloat16
        and left.device.type == "cpu"
        and left.dim() == right.dim() == 2
        and left.shape[1] == right.shape[0]
        and left.numel() * right.shape[1] >= _LEAST_WORK
        and (out is None or (out.dtype == left.dtype and out.shape == (left.shape[0], right.shape[1])))
        and not torch.compiler.is_compiling()
        and not (torch.is_grad_enabled() and any(t.requires_grad for t in (left, right, bias) if t is not None))
        and not multiplies_bfloat16()
    )


def _own(left: Tensor, right: Tensor, out: Tensor | None, bias: Tensor | None = None) -> bool:
    if torch.is_grad_enabled() and any(t.requires_grad for t in (left, right, bias) if t is not None):
        return False
    return _serves(left, right, out, bias)


def _serves(left: Tensor, right: Tensor, out: Tensor | None, bias: Tensor | None = None) -> bool:
    """Whether our own may make the product; what is not of one form with it is torch's to refuse."""
    if torch.compiler.is_compiling() or left.dim() != right.dim() or left.dim() not in (2, 3):
        return False
    *batch, rows, terms = left.shape
    *beside, inner, columns = right.shape
    return (
        left.dtype == right.dtype == torch.float32
        and left.device.type == "cpu"
        and rows >= _LEAST_ROWS
        and columns >= _LEAST_COLUMNS
        and left.numel() * columns >= _LEAST_WORK
        and own_products()
        and terms == inner
        and batch == beside
        and (
            out is None or (out.dtype == torch.float32 and out.shape == (*batch, rows, columns) and out.stride(-1) == 1)
        )
        and (bias is None or (bias.dtype == torch.float32 and bias.shape == (columns,) and bias.stride(0) == 1))
        and not torch.is_autocast_enabled("cpu")
    )
