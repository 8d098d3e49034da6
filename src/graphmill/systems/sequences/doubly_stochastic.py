"""Doubly stochastic matrices from logits: by Sinkhorn and Knopp's iteration, or exactly, as a mean of permutations.

Both are computed in at least fp32: exp of a half-precision logit overflows at 11, and the rounding of forty
half-precision products adds up, so that the matrix is no longer doubly stochastic.
"""

from __future__ import annotations

from itertools import permutations

import torch
from torch import Tensor

from graphmill.kernels.devices import wide


def sinkhorn(logits: Tensor, iterations: int = 20) -> Tensor:
    """[N, n, n] → [N, n, n]: exp(logits), then ``iterations`` times: divide rows, then columns, by their sums.

    Columns are divided last and sum to 1 exactly, rows nearly. Computed as H = diag(u) P diag(v), so that the iteration
    runs over vectors. The batch is the last axis, so that every operation runs over long rows.
    """
    logits = wide(logits)
    kernel = (logits - logits.detach().amax(dim=-1, keepdim=True)).exp().permute(1, 2, 0).contiguous()
    v = torch.ones_like(kernel[0])
    for _ in range(iterations):
        u = (kernel * v[None]).sum(1).reciprocal()
        v = (kernel * u[:, None]).sum(0).reciprocal()
    return (kernel * u[:, None] * v[None]).permute(2, 0, 1).contiguous()


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
