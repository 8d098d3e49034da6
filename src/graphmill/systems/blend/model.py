"""What a checkpoint of a blend holds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from graphmill.systems.blend.paths import PathWeights


class BlendModule(nn.Module):
    """``mix`` [relations, parts]: the amount of each part. ``parts``: the models of those that are systems."""

    def __init__(self, relations: int, parts: int, *, paths: bool, systems: Mapping[str, nn.Module]) -> None:
        super().__init__()
        self.mix: Tensor
        self.register_buffer("mix", torch.ones(relations, parts))
        self.paths = PathWeights(relations) if paths else None
        self.parts: Any = nn.ModuleDict(systems).requires_grad_(False)
