"""ConvE as its formulas read: every map, every logit and every target stored."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F


def plain_feature_map(
    picture: Tensor, convolution: nn.Conv2d, norm: nn.Module, dropout: float, training: bool
) -> Tensor:
    """[B, 1, H, W] → [B, C · P], P positions: convolution, batch norm, ReLU and map dropout one after the other."""
    maps = F.relu(norm(convolution(picture)))
    return F.dropout2d(maps, dropout, training).flatten(1)


def one_to_n_loss_reference(
    x: Tensor, entities: Tensor, bias: Tensor | None, rows: Tensor, columns: Tensor, *, one: float, zero: float
) -> Tensor:
    """Σ_b Σ_n BCE(σ(x_b · e_n + b_n), y_bn), y = ``one`` at (rows, columns) and ``zero`` elsewhere; 0-d."""
    scores = x @ entities.T
    if bias is not None:
        scores = scores + bias
    targets = torch.full_like(scores, zero)
    targets[rows, columns] = one
    return F.binary_cross_entropy_with_logits(scores, targets, reduction="sum")
