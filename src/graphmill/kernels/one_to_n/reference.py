"""The 1-N loss as the formula reads: every logit, every target, all stored. Slow, large, obviously right."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F


def one_to_n_loss_reference(
    x: Tensor, entities: Tensor, bias: Tensor | None, rows: Tensor, columns: Tensor, *, one: float, zero: float
) -> Tensor:
    """Σ_b Σ_n BCE(σ(x_b · e_n + b_n), y_bn), y = ``one`` at (rows, columns) and ``zero`` elsewhere; 0-d.

    Arguments as in :func:`graphmill.kernels.one_to_n.one_to_n_loss`.
    """
    scores = x @ entities.T
    if bias is not None:
        scores = scores + bias
    targets = torch.full_like(scores, zero)
    targets[rows, columns] = one
    return F.binary_cross_entropy_with_logits(scores, targets, reduction="sum")
