"""Matrix products: torch's, or our own where torch's library is the slower one.

On CPUs torch hands products of fp32 to Intel's MKL, which on processors of another make uses half of their vector registers'
width. There, ``products_numba`` makes mostly a little over twice as many products a second; on Intel's, MKL is as fast. The
choice hangs on the processor and the operands' sizes alone, so that a training that is resumed goes on with the same bits.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from graphmill.kernels.threads import has_numba

_LEAST_WORK = 1 << 18
"""Multiplications under which the call itself is what takes the time."""
_LEAST_ROWS, _LEAST_COLUMNS = 6, 12
"""The size of a block in registers, more or less: narrower results leave most of it empty."""


def product(left: Tensor, right: Tensor, bias: Tensor | None = None, *, out: Tensor | None = None) -> Tensor:
    """left · right (+ ``bias`` [m]): [n, k] · [k, m], or [h, n, k] · [h, k, m] without ``bias``, with any strides.

    Differentiated through, it is torch's: :func:`linear` has a gradient of its own. ``out`` shares no memory with
    the others.
    """
    if not _own(left, right, out, bias):
        if bias is None:
            return torch.matmul(left, right) if out is None else torch.matmul(left, right, out=out)
        if left.device.type != "cpu" or left.dtype.itemsize < 4:
            return torch.addmm(bias, left, right) if out is None else torch.addmm(bias, left, right, out=out)
        # On a CPU faster than addmm, which writes the bias into every row before it multiplies.
        return torch.matmul(left, right, out=out).add_(bias)
    from graphmill.kernels import products_numba

    out = left.new_empty(*left.shape[:-1], right.shape[-1]) if out is None else out
    products_numba.product_(out, left, right, bias, False)
    return out


def add_product_(out: Tensor, left: Tensor, right: Tensor) -> Tensor:
    """``out`` += left · right, matrices or batches of them. See :func:`product`."""
    if not _own(left, right, out):
        return out.addmm_(left, right) if out.dim() == 2 else out.baddbmm_(left, right)
    from graphmill.kernels import products_numba

    products_numba.product_(out, left, right, None, True)
    return out


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x Wᵀ + b, differentiable (once): x [n, in], weight [out, in] with any strides, bias [out]."""
    if x.dim() != 2 or not _serves(x, weight.T, None, bias):
        return F.linear(x, weight, bias)
    found: Tensor = _Linear.apply(x, weight, bias)
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


@cache
def wide_registers() -> bool:
    """Whether the processor multiplies 512 bits at a time, which our own blocks are made for."""
    if not has_numba():
        return False
    from llvmlite import binding

    return bool(binding.get_host_cpu_features().get("avx512f"))


@cache
def own_products() -> bool:
    """Whether this machine's processor is one on which our own products were measured to be the faster ones."""
    if not wide_registers():
        return False
    from llvmlite import binding

    # LLVM's names of AMD's cores. From the fifth generation on their units are 512 bits wide, which MKL does not use.
    name, _, generation = binding.get_host_cpu_name().partition("znver")
    return not name and generation.isdigit() and int(generation) >= 5


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
