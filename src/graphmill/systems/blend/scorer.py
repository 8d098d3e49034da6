"""The score of a blend: a weighted sum of parts, in a run and from its export."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import torch
from torch import Tensor

from graphmill.graph.training_links import TrainingLinks
from graphmill.systems.blend.part import Part
from graphmill.systems.link_export import scores_of_links


class BlendScorer:
    """``parts`` by name; ``mix`` float32 [relations, parts]: the amount of each, in the order of ``parts``."""

    def __init__(self, links: TrainingLinks, parts: Mapping[str, Part], mix: np.ndarray) -> None:
        self.links, self.parts, self.mix = links, parts, mix
        self.poll: Callable[[], None] = lambda: None

    def score_targets(self, relation: int, heads: np.ndarray) -> Tensor:
        """Local head numbers int64 [B] → fp32 [B, candidates]. Parts whose amount is 0 are not computed."""
        self.poll()
        amounts = zip(self.parts.values(), self.mix[relation].tolist(), strict=True)
        scores = torch.zeros(len(heads), self.links.outgoing[relation].shape[1])
        for part, amount in amounts:
            if amount:
                scores += amount * part.scores(relation, heads)
        return scores

    def score(self, relation: int, heads: np.ndarray, tails: np.ndarray) -> Tensor:
        """One score per link: local numbers int64 [B] → fp32 [B]."""
        return scores_of_links(self.score_targets, relation, heads, tails)
