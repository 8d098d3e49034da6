"""Divides rows by their norm; the backward pass reads each row twice instead of a dozen times."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from graphmill.kernels.devices import suits_compiled, wide
from graphmill.kernels.runtime.threads import has_numba

SMALLEST = 1e-12
"""Lower bound of the divisor, so that a zero row stays zero."""


def normalise_rows(x: Tensor) -> Tensor:
    """[n, d] → each row divided by max(‖row‖₂, 1e-12), in the dtype of ``x``; norms are taken in at least fp32.

    With y = x / ‖x‖ the gradient is (g − y (y · g)) / ‖x‖; for a zero row it is g / 1e-12, as in ``F.normalize``.
    """
    own = wide(x)
    compiled = suits_compiled(own) and has_numba()
    out: Tensor = _BesideNormalised.apply(own[:, :0], own) if compiled else _NormaliseRows.apply(own)
    return out.to(x.dtype)


def beside_normalised(first: Tensor, *others: Tensor) -> Tensor:
    """``first`` [n, d₀] ‖ ``others`` [n, d] with rows divided by max(‖row‖₂, 1e-12) → [n, Σ d], in their common dtype.

    The result is that of :func:`normalise_rows` and ``torch.cat``, with one pass over each table, forward and backward.
    """
    if not (suits_compiled(first, *others) and has_numba()):
        return torch.cat((first, *(normalise_rows(x) for x in others)), 1)
    return _BesideNormalised.apply(first, *others)


class _NormaliseRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        norm = torch.linalg.vector_norm(x, dim=1, keepdim=True)
        small = norm < SMALLEST
        norm.clamp_(min=SMALLEST)
        y = x / norm
        ctx.save_for_backward(y, norm, small)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        (y, norm, small), (g,) = ctx.saved_tensors, gradients
        along = (g * y).sum(1, keepdim=True)
        # If the divisor is the constant, the gradient along the row is not removed.
        along.masked_fill_(small, 0.0)
        return torch.addcmul(g, y, along, value=-1.0).div_(norm)


class _BesideNormalised(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, first: Tensor, *others: Tensor) -> Tensor:
        from graphmill.kernels.row_norm import cpu as row_norm_cpu

        begin, widths = first.shape[1], [x.shape[1] for x in others]
        out, divisors = first.new_empty(len(first), begin + sum(widths)), first.new_empty(len(others), len(first))
        out[:, :begin] = first
        for x, divisor, place in zip(others, divisors, _places(begin, widths), strict=True):
            row_norm_cpu.forward(x.contiguous(), SMALLEST, out, divisor, place)
        ctx.begin, ctx.widths = begin, widths
        ctx.save_for_backward(out, divisors)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, ...]:
        from graphmill.kernels.row_norm import cpu as row_norm_cpu

        out, divisors = ctx.saved_tensors
        gradient = gradients[0].contiguous()
        result = [out.new_empty(len(out), width) for width in ctx.widths]
        for into, divisor, place in zip(result, divisors, _places(ctx.begin, ctx.widths), strict=True):
            row_norm_cpu.backward(gradient, out, divisor, into, place)
        return gradient[:, : ctx.begin], *result


def _places(begin: int, widths: list[int]) -> list[int]:
    """The first column of each table in their concatenation."""
    return [begin + sum(widths[:n]) for n in range(len(widths))]
