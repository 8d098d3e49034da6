"""Losses in forms that do not overflow or underflow, always computed in fp32 (or wider), as sums.

Each equals the textbook form exactly: −log σ(x) = softplus(−x) is finite for every finite x, and its gradient is −1 for
x → −∞, where log(sigmoid(x)) would be −inf with gradient NaN.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from graphmill.kernels.devices import wide


def bpr_losses(positive: Tensor, negative: Tensor) -> Tensor:
    """−log σ(s⁺ − s⁻), elementwise, at least fp32: Bayesian personalised ranking (Rendle et al. 2009).

    The difference is computed in fp32, too, because half precision would lose the difference of close scores.
    """
    return F.softplus(wide(negative) - wide(positive))


def row_dots(left: Tensor, right: Tensor) -> Tensor:
    """[B, d], [B, d] → [B]: the dot products of the rows, at least fp32."""
    return (wide(left) * wide(right)).sum(1)


def half_squares(*tables: Tensor) -> Tensor:
    """½ Σ‖·‖² over all rows of all tables (0-d, at least fp32): the L2 term of KGAT and BPR-MF before its division by B."""
    return torch.stack([wide(table).square().sum() for table in tables]).sum() / 2
