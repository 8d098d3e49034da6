"""The parts of a blend's score. Each is one number for a head and a candidate, from the training links and few arrays."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphmill.evaluation.baselines.neighbours import NeighbourScorer
from graphmill.graph.training_links import TrainingLinks

POPULARITY = "popularity"
POPULARITIES = (1.0, 0.3, 0.03)
"""Amounts of popularity that are tried. Never 0: popularity breaks ties."""
TIE_BREAK = 1e-6
WITHOUT_DEGREE = 30.0
"""Weight of similarities that rank best without a degree beside them."""


class Part(ABC):
    """``alone``: its amount and popularity's with which it ranks as the baseline of its name does. ``amounts``: those that
    are tried beside other parts."""

    alone: tuple[float, float]
    amounts: tuple[float, ...]

    @abstractmethod
    def scores(self, relation: int, heads: np.ndarray) -> Tensor:
        """Local head numbers int64 [B] → fp32 [B, candidates]."""


@dataclass
class Popularity(Part):
    """log(1 + training links into the candidate)."""

    links: TrainingLinks
    alone = (0.0, 1.0)
    amounts = POPULARITIES

    def scores(self, relation: int, heads: np.ndarray) -> Tensor:
        """:meth:`Part.scores`; all rows are equal (a view)."""
        degree = np.log1p(self.links.degrees(relation)).astype(np.float32)
        return torch.from_numpy(degree).expand(len(heads), -1)


class Similarities(Part):
    """The similarities of a baseline, kNN or spectral vectors, without its degree term."""

    def __init__(self, scorer: NeighbourScorer, tried: tuple[float, ...]) -> None:
        self.scorer, setting = scorer, scorer.setting
        self.alone = (setting.weight, setting.popularity)
        self.amounts = tuple(each * (setting.strength or WITHOUT_DEGREE) for each in tried)

    def scores(self, relation: int, heads: np.ndarray) -> Tensor:
        """:meth:`Part.scores`."""
        setting = self.scorer.setting
        parts = self.scorer.parts(relation, heads, setting.side)
        return torch.from_numpy(self.scorer.similarities(relation, heads, parts, setting))


@dataclass
class Trained(Part):
    """The scores of a trained system: of its model in a run, or of its export."""

    scorer: Any
    alone = (1.0, 0.0)
    amounts = (0.0, 0.3, 1.0, 3.0)

    def scores(self, relation: int, heads: np.ndarray) -> Tensor:
        """:meth:`Part.scores`."""
        result: Tensor = self.scorer.score_targets(relation, heads)
        return result.float().cpu()
