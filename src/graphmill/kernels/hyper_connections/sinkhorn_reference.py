"""Sinkhorn and Knopp's iteration as it is defined."""

from __future__ import annotations

import torch
from torch import Tensor


def sinkhorn_reference(logits: Tensor, iterations: int = 20) -> Tensor:
    """[..., n, n]: exp, then rows and columns divided by their sums in turn."""
    matrix = torch.exp(logits)
    for _ in range(iterations):
        matrix = matrix / matrix.sum(-1, keepdim=True)
        matrix = matrix / matrix.sum(-2, keepdim=True)
    return matrix
