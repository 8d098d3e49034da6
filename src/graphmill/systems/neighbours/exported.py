"""Scores of links from exported spectral vectors."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from torch import Tensor

from graphmill.arrays import array_of
from graphmill.evaluation.baselines.neighbours import NeighbourScorer, rows_of_links, setting_of
from graphmill.graph.training_links import TrainingLinks
from graphmill.systems.link_export import ExportedScorer


class SpectralExport(ExportedScorer):
    """Similarities of the vectors float32 [nodes, d], and the popularity of the target. ``arrays``: ``setting`` float32 [5]
    and the training links."""

    def __init__(self, arrays: Mapping[str, np.ndarray], vectors: np.ndarray) -> None:
        super().__init__(vectors, TrainingLinks.read(arrays, len(vectors)))
        setting = setting_of(array_of(arrays, "setting", (5,), "f"))
        self.scorer = NeighbourScorer(self.links, rows_of_links(self.links, setting, self.vectors.numpy()), setting)

    def scores(self, relation: int, heads: Tensor, targets: slice) -> Tensor:
        """:meth:`ExportedScorer.scores`."""
        return self.scorer.score_targets(relation, heads.numpy() - self.links.offsets[relation][0])


scorer_of = SpectralExport
