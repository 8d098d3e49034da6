"""Hyper-connections one stream at a time, and Sinkhorn and Knopp's iteration as it is defined."""

from __future__ import annotations

import torch
from torch import Tensor


def read_streams_reference(streams: Tensor, weights: Tensor) -> Tensor:
    """Σ_s h_s X_s."""
    return torch.stack([weights[:, s, None] * streams[:, s] for s in range(streams.shape[1])]).sum(0)


def write_streams_reference(streams: Tensor, mixing: Tensor, weights: Tensor, update: Tensor) -> Tensor:
    """X'_i = Σ_s H_is X_s + p_i y."""
    n = streams.shape[1]
    rows = []
    for i in range(n):
        row = weights[:, i, None] * update
        for s in range(n):
            row = row + mixing[:, i, s, None] * streams[:, s]
        rows.append(row)
    return torch.stack(rows, dim=1)


def scaled_projection_reference(streams: Tensor, weight: Tensor, eps: float) -> Tensor:
    """RMSNorm first, then the product."""
    flat = streams.flatten(1)
    return (flat / torch.sqrt((flat**2).mean(1, keepdim=True) + eps)) @ weight


def sinkhorn_reference(logits: Tensor, iterations: int = 20) -> Tensor:
    """[..., n, n]: exp, then rows and columns divided by their sums in turn."""
    matrix = torch.exp(logits)
    for _ in range(iterations):
        matrix = matrix / matrix.sum(-1, keepdim=True)
        matrix = matrix / matrix.sum(-2, keepdim=True)
    return matrix
