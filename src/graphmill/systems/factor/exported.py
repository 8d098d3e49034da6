"""Scores of links from exported vectors and the relations' parameters."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from graphmill.arrays import array_of
from graphmill.errors import InputError
from graphmill.graph.training_links import TrainingLinks
from graphmill.systems.factor.model import SCORES, FactorTables, joined, scores_of_all
from graphmill.systems.link_export import ExportedScorer


def scoring_arrays(model: FactorTables, links: TrainingLinks) -> dict[str, np.ndarray]:
    """``relations`` [R, d] (RotatE's of modulus 1) and ``popularity`` [R] of the model, ``score`` [1], its place in
    :data:`~graphmill.systems.factor.model.SCORES`, and the training links."""
    arrays = {"relations": model.relation_vectors(), "popularity": model.popularity}
    values = {name: value.detach().float().cpu().numpy() for name, value in arrays.items()}
    return values | {"score": np.array([SCORES.index(model.score)], np.int64), **links.arrays()}


class FactorExport(ExportedScorer):
    """The model's score of the table's rows float32 [nodes, d]. ``arrays``: :func:`scoring_arrays`."""

    def __init__(self, arrays: Mapping[str, np.ndarray], vectors: np.ndarray) -> None:
        super().__init__(vectors, TrainingLinks.read(arrays, len(vectors)))
        dim = self.vectors.shape[1]
        self.relations = torch.from_numpy(array_of(arrays, "relations", (None, dim), "f"))
        count = len(self.relations)  # with the inverse relations, if the system has them
        self.popularity = array_of(arrays, "popularity", (count,), "f")
        number = int(array_of(arrays, "score", (1,), "i")[0])
        if not 0 <= number < len(SCORES):
            raise InputError(f"its score has the number {number}; there are {len(SCORES)}")
        self.score_name = SCORES[number]
        if count < len(self.links.outgoing) or (self.score_name in ("complex", "rotate") and dim % 2):
            raise InputError(f"its {count} relations of {dim} numbers are not those of its links")

    def scores(self, relation: int, heads: Tensor, targets: slice) -> Tensor:
        """:meth:`ExportedScorer.scores`."""
        x = joined(self.vectors[heads], self.relations[[relation]], self.score_name)
        degree = np.log1p(self.links.degrees(relation)).astype(np.float32) * self.popularity[relation]
        return scores_of_all(x, self.vectors[targets], self.score_name) + torch.from_numpy(degree)


scorer_of = FactorExport
