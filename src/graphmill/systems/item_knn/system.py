"""The system of item-kNN: the sum of the similarities to the items that a user has met."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import scipy.sparse as sp
from torch import Tensor

from graphmill.evaluation.baselines.recommendation import ItemModels
from graphmill.systems.closed_form import scores_of
from graphmill.systems.item_knn.settings import ItemKnnSettings
from graphmill.systems.recommenders.closed_form import ItemClosedForm
from graphmill.systems.recommenders.evaluate import known
from graphmill.training.solved import SolvedArrays


class ItemKnnSystem(ItemClosedForm):
    """The similarities [I, I] as rows: ``indptr`` int64 [I + 1], ``items`` int32 and ``weights`` float32 [nnz];
    ``neighbours`` and ``shrink`` [1].

    With very many pairs of items, the items with most interactions are used (:attr:`ItemModels.paired`).
    """

    ARRAYS = ("indptr", "items", "weights", "neighbours", "shrink")
    settings: ItemKnnSettings

    def fitted(self, poll: Callable[[], None]) -> Mapping[str, np.ndarray]:
        """The settings that are 0 by validation, and the similarities."""
        model = self.settings.model
        neighbours, shrink = model.neighbours, model.shrink
        if not (neighbours and shrink):
            best = self.chosen("item_knn", poll).values
            neighbours, shrink = neighbours or int(best["neighbours"]), shrink or best["shrink"]
        poll()
        models = ItemModels(known(self.view.train), self.view.num_items)
        found = models.knn_weights(neighbours, shrink).tocoo()
        row, column = models.paired[found.row], models.paired[found.col]
        whole = sp.csr_matrix((found.data, (row, column)), (self.view.num_items,) * 2)
        return {
            "indptr": whole.indptr.astype(np.int64),
            "items": whole.indices.astype(np.int32),
            "weights": whole.data.astype(np.float32),
            "neighbours": np.array([neighbours]),
            "shrink": np.array([shrink], np.float32),
        }

    def scores(self, model: SolvedArrays, met: sp.csr_matrix) -> Tensor:
        """The sum of the similarities of the items met."""
        parts = model.array("weights"), model.array("items"), model.array("indptr")
        return scores_of(met, sp.csr_matrix(parts, (met.shape[1],) * 2))
