"""Mixing of residual streams (hyper-connections): what a layer reads, and what it writes back. Per row, no parameters.

read    x̄ = Σ_s h_s X_s                    X' = H X + p ⊗ y
"""

from __future__ import annotations

import torch
from torch import Tensor


def read_streams(streams: Tensor, weights: Tensor) -> Tensor:
    """``streams`` [N, n, C] and ``weights`` [N, n] → [N, C]: the weighted sum."""
    return torch.bmm(weights.to(streams.dtype)[:, None, :], streams).squeeze(1)


def write_streams(streams: Tensor, mixing: Tensor, weights: Tensor, update: Tensor) -> Tensor:
    """H X + p ⊗ y: ``mixing`` [N, n, n], ``weights`` [N, n], ``update`` [N, C] → [N, n, C]."""
    mixed = torch.bmm(mixing.to(streams.dtype), streams)
    return torch.addcmul(mixed, weights.to(mixed.dtype)[:, :, None], update.to(mixed.dtype)[:, None, :])


def scaled_projection(streams: Tensor, weight: Tensor, eps: float) -> Tensor:
    """RMSNorm(vec X) Φ, with the scale applied after the product: [N, n, C], [n · C, m] → [N, m].

    vec X · Φ / √(mean(vec X²) + eps) equals normalising first, and reads the streams once less.
    """
    flat = streams.flatten(1)
    scale = torch.rsqrt(flat.square().mean(1, keepdim=True) + eps)
    return (flat @ weight) * scale
