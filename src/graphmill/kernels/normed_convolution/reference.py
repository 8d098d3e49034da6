"""Convolution, batch norm, ReLU and map dropout one after the other: what :mod:`normed_convolution` must equal."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F


def plain_feature_map(
    picture: Tensor, convolution: nn.Conv2d, norm: nn.Module, dropout: float, training: bool
) -> Tensor:
    """[B, 1, H, W] → [B, C · P], P positions: :meth:`graphmill.systems.conve.model.ConvE.feature_map` after its input."""
    maps = F.relu(norm(convolution(picture)))
    return F.dropout2d(maps, dropout, training).flatten(1)
