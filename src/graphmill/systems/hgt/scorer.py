"""Scores of every candidate target by a trained HGT's vectors and decoder."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from graphmill.systems.hgt.decoder import LinkDecoder

if TYPE_CHECKING:
    from graphmill.systems.hgt.system import HgtSystem


class HgtScorer:
    """Scores every candidate target of a relation from embeddings computed once."""

    def __init__(self, system: HgtSystem, model: nn.Module) -> None:
        self.system = system
        self.decoder: LinkDecoder = model.decoder  # type: ignore[assignment]
        self.z = torch.cat([torch.from_numpy(b.vectors) for b in system.embeddings(model)]).to(system.device)
        self.poll: Callable[[], None] = lambda: None

    def score_targets(self, relation: int, heads: np.ndarray) -> Tensor:
        """Local head numbers int64 [B] → fp32 [B, candidates]."""
        self.poll()
        r = self.system.data.relations[relation]
        left = self.z[torch.from_numpy(heads + r.source_offset).to(self.z.device)]
        right = self.z[r.target_offset : r.target_offset + r.num_targets]
        with torch.no_grad():
            return self.decoder.against_all(left, relation, right, self.system.log_degree[relation])
