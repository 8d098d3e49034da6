"""Losses of links and of similar nodes, always computed in fp32 or wider.

−log σ(x) is computed as softplus(−x), which equals it. This is finite for every finite x, and its gradient is −1 for
x → −∞. There log(sigmoid(x)) would be −inf, and its gradient NaN.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from graphmill.kernels.devices import wide


def positive_link_loss(scores: Tensor) -> Tensor:
    """−log σ(s), elementwise, at least fp32: binary cross-entropy with label 1."""
    return F.softplus(-wide(scores))


def negative_link_loss(scores: Tensor) -> Tensor:
    """−log(1 − σ(s)), elementwise, at least fp32: binary cross-entropy with label 0."""
    return F.softplus(wide(scores))


def info_nce_sums(
    anchors: Tensor,
    candidates: Tensor,
    own: Tensor,
    positive_rows: Tensor,
    positive_columns: Tensor,
    temperature: float,
) -> Tensor:
    """Σ_i −1/|P_i| Σ_{p ∈ P_i} log( exp(c_ip/τ) / Σ_{a ≠ i} exp(c_ia/τ) ), c the cosine (SupCon, Khosla et al. 2020).

    ``anchors`` [A, d] and ``candidates`` [C, d]; ``own`` int64 [A]: each anchor's column among the candidates;
    ``positive_rows`` / ``positive_columns`` int64 [Q]: the positive pairs. Every anchor has at least one. Returns 0-d.
    """
    left = F.normalize(wide(anchors), dim=1, eps=1e-8)
    right = F.normalize(wide(candidates), dim=1, eps=1e-8)
    with torch.autocast(anchors.device.type, enabled=False):  # a matrix product would go to half precision
        logits = (left @ right.T) / temperature
    not_self = torch.zeros_like(logits).scatter_(1, own[:, None], float("-inf"))
    total = torch.logsumexp(logits + not_self, dim=1)
    # Not bincount, which makes the host wait for the largest number.
    count = logits.new_zeros(len(anchors)).scatter_add_(0, positive_rows, logits.new_ones(len(positive_rows)))
    gathered = logits[positive_rows, positive_columns] / count[positive_rows]
    return total.sum() - gathered.sum()
