"""Scores of links from ComplEx's exported vectors and the relations' parameters."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from graphmill.arrays import array_of
from graphmill.errors import InputError
from graphmill.graph.training_links import TrainingLinks
from graphmill.systems.complex.model import ComplEx, products
from graphmill.systems.link_export import ExportedScorer


def scoring_arrays(model: ComplEx, links: TrainingLinks) -> dict[str, np.ndarray]:
    """``relations`` [R, d] and ``popularity`` [R] of the model, ``complex`` [1] (0: DistMult), and the training links."""
    arrays = {"relations": model.relations, "popularity": model.popularity}
    told = {name: value.detach().float().cpu().numpy() for name, value in arrays.items() if value is not None}
    return told | {"complex": np.array([model.scoring == "complex"], np.int64), **links.arrays()}


class ComplexExport(ExportedScorer):
    """Products of the tables' rows, with the popularity of the target if the model uses it."""

    def __init__(self, arrays: Mapping[str, np.ndarray], vectors: np.ndarray) -> None:
        super().__init__(vectors, TrainingLinks.read(arrays, len(vectors)))
        dim = self.vectors.shape[1]
        self.relations = torch.from_numpy(array_of(arrays, "relations", (None, dim), "f"))
        count = len(self.relations)  # with the inverse relations, if the system has them
        self.popularity = array_of(arrays, "popularity", (count,), "f") if "popularity" in arrays else None
        self.complex = bool(array_of(arrays, "complex", (1,), "i")[0])
        if count < len(self.links.outgoing) or (self.complex and dim % 2):
            raise InputError(f"its {count} relations of {dim} numbers are not those of its links")

    def scores(self, relation: int, heads: Tensor, targets: slice) -> Tensor:
        """:meth:`ExportedScorer.scores`."""
        x = products(self.vectors[heads], self.relations[[relation]], "complex" if self.complex else "distmult")
        found = x @ self.vectors[targets].T
        if self.popularity is None:
            return found
        degree = np.log1p(self.links.degrees(relation)).astype(np.float32) * self.popularity[relation]
        return found + torch.from_numpy(degree)


def scorer_of(arrays: Mapping[str, np.ndarray], vectors: np.ndarray) -> ComplexExport:
    """The scorer of an export: its vectors float32 [nodes, d] and :func:`scoring_arrays`."""
    return ComplexExport(arrays, vectors)
