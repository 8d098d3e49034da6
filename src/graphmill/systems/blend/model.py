"""What a checkpoint of a blend holds."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from graphmill.systems.blend.paths import PathWeights


class BlendModule(nn.Module):
    """``left`` [nodes, width] and ``values`` [width]: the basis of the spectral vectors. ``settings`` [parts, 4]: those of
    kNN and of spectral vectors by validation. ``mix`` [relations, parts]: the amount of each part. ``trained``: the models
    of the parts that are trained, by name.
    """

    def __init__(
        self, nodes: int, relations: int, width: int, parts: int, *, paths: bool, trained: Mapping[str, nn.Module]
    ) -> None:
        super().__init__()
        self.left: Tensor
        self.values: Tensor
        self.settings: Tensor
        self.mix: Tensor
        self.register_buffer("left", torch.zeros(nodes, width))
        self.register_buffer("values", torch.zeros(width))
        self.register_buffer("settings", torch.zeros(parts, 4))
        self.register_buffer("mix", torch.ones(relations, parts))
        self.paths = PathWeights(relations) if paths else None
        self.trained = nn.ModuleDict(trained).requires_grad_(False)
