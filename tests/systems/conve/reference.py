"""ConvE as its formulas read: every map, every logit and every target stored."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F


def plain_feature_map(
    picture: Tensor, convolution: nn.Conv2d, norm: nn.Module, dropout: float, training: bool
) -> Tensor:
    """[B, 1, H, W] → [B, C · P], P positions: convolution, batch norm, ReLU and map dropout one after the other."""
    maps = F.relu(norm(convolution(picture)))
    return F.dropout2d(maps, dropout, training).flatten(1)
