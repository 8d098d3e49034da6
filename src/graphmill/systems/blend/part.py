"""The parts of a blend's score and their sum: one number for a head and a candidate, from training links and few arrays."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphmill.evaluation.baselines.neighbours import NeighbourScorer, NeighbourSetting
from graphmill.graph.features import comparable
from graphmill.graph.later_nodes import LaterNodes
from graphmill.graph.training_links import TrainingLinks
from graphmill.graph.typed_graph import TypedGraph
from graphmill.systems.link_export import scores_of_links

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


FEATURES = "features"
FEW = 3.0
"""Links of a candidate at which the part counts half: the more links there are, the less features say beside them."""


class FeatureSimilarity(Part):
    """The mean similarity of the candidate to the head's other targets, and of the head to the candidate's other sources,
    times ``FEW / (FEW + n)`` for a candidate with n links. ``rows``: of :func:`comparable_rows`."""

    alone = (30.0, 1.0)
    amounts = (0.0,)  # mix_for_few_links chooses

    def __init__(self, links: TrainingLinks, rows: np.ndarray) -> None:
        self.links, self.rows = links, rows
        self.scorer = NeighbourScorer(links, rows, NeighbourSetting(damping=1.0))

    def scores(self, relation: int, heads: np.ndarray) -> Tensor:
        """:meth:`Part.scores`."""
        setting = self.scorer.setting
        parts = self.scorer.parts(relation, heads, setting.side)
        similarity = self.scorer.similarities(relation, heads, parts, setting)
        return torch.from_numpy(similarity * (FEW / (FEW + self.links.degrees(relation))).astype(np.float32))


def comparable_rows(graph: TypedGraph, later: LaterNodes | None = None) -> np.ndarray:
    """float32 [nodes, width of the widest type]: features, of which two nodes of a type have a cosine as their product.

    ``later``: nodes that follow the known ones of their type.
    """
    of_types = []
    for number, t in enumerate(graph.node_types):
        sets, more = [], later.counts[number] if later else 0
        for name in graph.feature_sets(t.name):
            known, present = graph.features(t.name, name), graph.feature_mask(t.name, name)
            assert known is not None
            assert present is not None
            new = later.features.get((number, name)) if later else None
            new = np.zeros((more, known.shape[1]), np.float32) if new is None else new
            sets.append((np.concatenate([known, new]), present))
        of_types.append(comparable(sets) if sets else np.zeros((t.count + more, 0), np.float32))
    width = max(rows.shape[1] for rows in of_types)
    return np.concatenate([np.pad(rows, ((0, 0), (0, width - rows.shape[1]))) for rows in of_types])
