"""Doubly stochastic matrices from logits: by Sinkhorn and Knopp's iteration, or exactly, as a mean of permutations.

Both are computed in at least fp32: exp of a half-precision logit overflows at 11, and the rounding of forty
half-precision products adds up, so that the matrix is no longer doubly stochastic.
"""

from __future__ import annotations

from itertools import permutations
from typing import Any

import torch
from torch import Tensor

from graphmill.kernels.devices import wide


def sinkhorn(logits: Tensor, iterations: int = 20) -> Tensor:
    """[N, n, n] → [N, n, n]: exp(logits), then ``iterations`` times: divide rows, then columns, by their sums.

    Columns are divided last and sum to 1 exactly, rows nearly. Computed as H = diag(u) P diag(v), so that the iteration
    runs over vectors; the backward pass differentiates every iteration (reference: ``sinkhorn_reference``).
    """
    return _Sinkhorn.apply(wide(logits), iterations)


class _Sinkhorn(torch.autograd.Function):
    """The batch is the last axis, so that every operation runs over long rows."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, iterations: int) -> Tensor:
        shifted = logits - logits.amax(dim=-1, keepdim=True)
        kernel = shifted.exp().permute(1, 2, 0).contiguous()
        n, _, count = kernel.shape
        v = torch.ones(n, count, dtype=kernel.dtype, device=kernel.device)
        us, vs = [], [v]
        for _ in range(iterations):
            u = (kernel * v[None]).sum(1).reciprocal_()
            v = (kernel * u[:, None]).sum(0).reciprocal_()
            us.append(u)
            vs.append(v)
        ctx.save_for_backward(kernel, torch.stack(us), torch.stack(vs))
        return (kernel * us[-1][:, None] * v[None]).permute(2, 0, 1).contiguous()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        kernel, us, vs = ctx.saved_tensors
        grad = gradients[0].permute(1, 2, 0).contiguous()
        u, v = us[-1], vs[-1]
        grad_kernel = grad * u[:, None] * v[None]
        weighted = grad * kernel
        grad_u = (weighted * v[None]).sum(1)
        grad_v = (weighted * u[:, None]).sum(0)
        for step in range(len(us) - 1, -1, -1):
            u, v, before = us[step], vs[step + 1], vs[step]
            grad_c = -grad_v * v * v
            grad_u = grad_u + (kernel * grad_c[None]).sum(1)
            grad_r = -grad_u * u * u
            grad_kernel.addcmul_(u[:, None], grad_c[None])
            grad_kernel.addcmul_(grad_r[:, None], before[None])
            grad_v = (kernel * grad_r[:, None]).sum(0)
            grad_u = torch.zeros_like(grad_u)
        return (grad_kernel * kernel).permute(2, 0, 1), None


def permutation_matrices(n: int) -> Tensor:
    """[n!, n, n] fp32: all permutation matrices; the first is the identity."""
    return torch.stack([torch.eye(n)[list(order)] for order in permutations(range(n))])


def permutation_mixture(logits: Tensor, matrices: Tensor) -> Tensor:
    """[N, n!] → [N, n, n]: Σ_k softmax(logits)_k P_k, doubly stochastic exactly (mHC-lite, arXiv 2601.05732).

    By Birkhoff's theorem every doubly stochastic matrix is such a mean.
    """
    shares = torch.softmax(wide(logits), dim=-1)
    n = matrices.shape[-1]
    return (shares @ matrices.to(shares.dtype).view(-1, n * n)).view(-1, n, n)
