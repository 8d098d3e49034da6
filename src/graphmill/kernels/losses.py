"""Losses in the forms that do not overflow or underflow, always computed in fp32 (or wider), as sums.

Each is the textbook form's function exactly: −log σ(x) = softplus(−x), finite for every finite x, with a gradient of −1
for x → −∞, where log(sigmoid(x)) is −inf and its gradient NaN.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F


def bpr_losses(positive: Tensor, negative: Tensor) -> Tensor:
    """−log σ(s⁺ − s⁻), elementwise, at least fp32: Bayesian personalised ranking (Rendle et al. 2009).

    The difference is taken in fp32 as well: in half precision that alone would lose what tells two close scores apart.
    """
    return F.softplus(_wide(negative) - _wide(positive))


def row_dots(left: Tensor, right: Tensor) -> Tensor:
    """[B, d], [B, d] → [B]: the scalar products of the rows, at least fp32."""
    return (_wide(left) * _wide(right)).sum(1)


def half_squares(*tables: Tensor) -> Tensor:
    """½ Σ‖·‖² over all rows of all tables (0-d, at least fp32): the L2 term of KGAT and BPR-MF before its division by B."""
    return torch.stack([_wide(table).square().sum() for table in tables]).sum() / 2


def _wide(x: Tensor) -> Tensor:
    return x if x.dtype == torch.float64 else x.float()
