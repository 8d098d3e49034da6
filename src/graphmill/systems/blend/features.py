"""A blend's part for features of nodes, those made from attributes among them: nodes alike have the same links."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from graphmill.evaluation.baselines.neighbours import NeighbourScorer, NeighbourSetting
from graphmill.graph.features import comparable
from graphmill.graph.later_nodes import LaterNodes
from graphmill.graph.training_links import TrainingLinks
from graphmill.graph.typed_graph import TypedGraph
from graphmill.systems.blend.part import Part

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
