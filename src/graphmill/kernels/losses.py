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
    """½ Σ‖·‖² over all rows of all tables (0-d, at least fp32): the L2 term of KGAT and MF before its division by B."""
    return torch.stack([wide(table).square().sum() for table in tables]).sum() / 2


def fact_losses(rows: Tensor, translations: Tensor, relations: Tensor) -> tuple[Tensor, Tensor]:
    """Two sums over facts (0-d, at least fp32).

    ``rows`` [B, 3, k]: head h, tail t and false tail f of each fact, projected by its relation; ``translations`` [R, k];
    ``relations`` int64 [B]: rows e of those.

    * softplus(‖h + e − t‖² − ‖h + e − f‖²), which is −log σ of the difference of squared distances (KGAT, eq. 2; Lin et
      al. 2015);
    * ½ (‖h‖² + ‖e‖² + ‖t‖² + ‖f‖²).

    Raises IndexError if a relation has no row in ``translations``, and RuntimeError if shapes do not fit.
    """
    head, tail, false_tail = wide(rows).unbind(1)
    translation = wide(translations).index_select(0, relations)
    moved = head + translation
    right, false = ((moved - end).square().sum(1) for end in (tail, false_tail))
    return bpr_losses(-right, -false).sum(), half_squares(rows, translation)


def positive_link_loss(scores: Tensor) -> Tensor:
    """−log σ(s), elementwise, at least fp32: binary cross-entropy with label 1."""
    return F.softplus(-wide(scores))


def negative_link_loss(scores: Tensor) -> Tensor:
    """−log(1 − σ(s)), elementwise, at least fp32: binary cross-entropy with label 0."""
    return F.softplus(wide(scores))


def info_nce_sums(
    anchors: Tensor,
    candidates: Tensor,
    self_columns: Tensor,
    positive_rows: Tensor,
    positive_columns: Tensor,
    temperature: float,
) -> Tensor:
    """Σ_i −1/|P_i| Σ_{p ∈ P_i} log( exp(c_ip/τ) / Σ_{a ≠ i} exp(c_ia/τ) ), c the cosine (SupCon, Khosla et al. 2020).

    ``anchors`` [A, d] and ``candidates`` [C, d]; ``self_columns`` int64 [A]: each anchor's column among the candidates;
    ``positive_rows`` / ``positive_columns`` int64 [Q]: the positive pairs. Every anchor has at least one. Returns 0-d.
    """
    left = F.normalize(wide(anchors), dim=1, eps=1e-8)
    right = F.normalize(wide(candidates), dim=1, eps=1e-8)
    with torch.autocast(anchors.device.type, enabled=False):  # a matrix product would go to half precision
        logits = (left @ right.T) / temperature
    not_self = torch.zeros_like(logits).scatter_(1, self_columns[:, None], float("-inf"))
    total = torch.logsumexp(logits + not_self, dim=1)
    # Not bincount, which makes the host wait for the largest number.
    count = logits.new_zeros(len(anchors)).scatter_add_(0, positive_rows, logits.new_ones(len(positive_rows)))
    gathered = logits[positive_rows, positive_columns] / count[positive_rows]
    return total.sum() - gathered.sum()
