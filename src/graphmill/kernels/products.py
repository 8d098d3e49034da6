"""Matrix products: torch's, by the library that is faster on this processor.

On CPUs, torch passes fp32 products to Intel's MKL, which on AMD's processors uses half of the vector registers' width. torch
also ships oneDNN, which uses all of it: on a fifth-generation EPYC (Zen 5) it multiplies twice as many numbers per second.
On Intel's processors MKL is as fast. The choice depends only on the processor and the operands' sizes, so that a resumed
training gives the same bits.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from graphmill.kernels.runtime.processor import onednn_is_faster

_ONEDNN_WORK = 1 << 26
"""oneDNN makes code for every new shape, in about a millisecond: with fewer multiplications that is what it would save. Of
batches of sequences and of sampled neighbourhoods nearly every one has a new number of rows."""
_LEAST_ROWS, _LEAST_COLUMNS = 6, 12
"""Narrower results leave most of a processor's registers empty."""


def product(left: Tensor, right: Tensor, bias: Tensor | None = None, *, out: Tensor | None = None) -> Tensor:
    """left · right (+ ``bias`` [m]): [n, k] · [k, m] → [n, m], with any strides.

    If a gradient is needed, torch computes it; :func:`linear` has its own gradient. ``out`` must not share memory with
    the others.
    """
    if not _needs_gradient(left, right, bias) and _onednn_serves(left, right, out, bias):
        result: Tensor = torch.ops.mkldnn._linear_pointwise(left, right.T, bias, "none", [], "")
        return result if out is None else out.copy_(result)
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


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x Wᵀ + b, once differentiable: x [n, in], weight [out, in] with any strides, bias [out]."""
    if x.dim() != 2 or not _onednn_serves(x, weight.T, None, bias):
        return F.linear(x, weight, bias)
    return _Linear.apply(x, weight, bias)


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
