"""Matrix products of what is not differentiated through: torch's, or our own where torch's library is the slower one.

On CPUs torch hands products of fp32 to Intel's MKL, which on processors of another make uses half of their vector registers'
width. There, ``products_numba`` takes twice to three times as many products a second; on Intel's, MKL is as fast. The
choice hangs on the processor and the operands' sizes alone, so that a training that is resumed goes on with the same bits.
"""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor

from graphmill.kernels.threads import has_numba

_LEAST_WORK = 1 << 18
"""Multiplications under which the call itself is what takes the time."""
_LEAST_ROWS, _LEAST_COLUMNS = 6, 12
"""The size of a block in registers, more or less: narrower results leave most of it empty."""


def product(left: Tensor, right: Tensor, bias: Tensor | None = None, *, out: Tensor | None = None) -> Tensor:
    """left · right (+ ``bias`` [m]): [n, k] · [k, m], or [h, n, k] · [h, k, m] without ``bias``, with any strides.

    Not differentiable where it is our own: for the inside of ``autograd.Function``s.
    """
    if not _own(left, right, out):
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


@cache
def own_products() -> bool:
    """Whether this machine's processor is one on which our own products were measured to be the faster ones."""
    if not has_numba():
        return False
    from llvmlite import binding

    # LLVM's names of AMD's cores. From the fifth generation on they multiply 512 bits at a time, which MKL does not use.
    name, _, generation = binding.get_host_cpu_name().partition("znver")
    wide = not name and generation.isdigit() and int(generation) >= 5
    return wide and bool(binding.get_host_cpu_features().get("avx512f"))


def _own(left: Tensor, right: Tensor, out: Tensor | None) -> bool:
    rows, terms = left.shape[-2:]
    columns = right.shape[-1]
    return (
        left.dtype == right.dtype == torch.float32
        and left.device.type == "cpu"
        and rows >= _LEAST_ROWS
        and columns >= _LEAST_COLUMNS
        and left.numel() * columns >= _LEAST_WORK
        and own_products()
        and (out is None or (out.dtype == torch.float32 and out.stride(-1) == 1))
        and not torch.compiler.is_compiling()
        and not (torch.is_grad_enabled() and (left.requires_grad or right.requires_grad))
    )
