"""The system of item-kNN: the sum of the similarities to the items that a user has met."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import scipy.sparse as sp
from torch import Tensor

from graphmill.evaluation.baselines.recommendation import ItemModels, scores_of, take_out
from graphmill.evaluation.ranking.items import rank_items
from graphmill.evaluation.ranking.recommendation import KnownItems
from graphmill.graph.features import comparable
from graphmill.systems.closed_form import arrays_of
from graphmill.systems.closed_form import matrix_of as weights_of
from graphmill.systems.item_knn.settings import ALIKE, NEAREST, ItemKnnSettings
from graphmill.systems.recommenders.closed_form import ItemClosedForm, matrix_of
from graphmill.systems.recommenders.evaluate import known
from graphmill.training.solved import SolvedArrays

FEW = 3.0
"""Interactions of an item at which the similarity by features counts half."""
KEPT = 0.99
"""Share of the best figure on validation that must be left: the largest such amount is taken, because items with few
interactions are few on validation."""
BLOCK = 512


class ItemKnnSystem(ItemClosedForm):
    """The similarities [I, I] as rows: ``indptr`` int64 [I + 1], ``items`` int32 and ``weights`` float32 [nnz];
    ``neighbours``, ``shrink`` and ``alike`` [1]; ``weighted`` int64 [1]: whether an item that a user has met counts by the
    interaction's weight, such as a rating, which the validation split chooses.

    Items with features, such as those from attributes, also have similarities by them: ``alike`` times
    :func:`alike_items`, as much as validation allows. So an item without interactions has a score.

    With very many pairs of items, the items with most interactions are used (:attr:`ItemModels.paired`).
    """

    ARRAYS = ("indptr", "items", "weights", "neighbours", "shrink", "alike", "weighted")
    settings: ItemKnnSettings

    def fitted(self, poll: Callable[[], None]) -> Mapping[str, np.ndarray]:
        """The settings that are 0 by validation, and the similarities."""
        model = self.settings.model
        neighbours, shrink, weighted = model.neighbours, model.shrink, False
        if not (neighbours and shrink) or self.view.train_weights is not None:
            best = self.chosen("item_knn", poll).values
            neighbours, shrink = neighbours or int(best["neighbours"]), shrink or best["shrink"]
            weighted = bool(best.get("weighted"))
        poll()
        models = ItemModels(known(self.view.train), self.view.num_items)
        entries = models.knn_weights(neighbours, shrink).tocoo()
        row, column = models.paired[entries.row], models.paired[entries.col]
        whole = sp.csr_matrix((entries.data, (row, column)), (self.view.num_items,) * 2)
        alike, whole = self._with_features(whole, weighted, poll) if self.view.features else (0.0, whole)
        chosen = {"neighbours": np.array([neighbours]), "shrink": np.array([shrink], np.float32)}
        chosen["weighted"] = np.array([weighted], np.int64)
        return arrays_of(whole) | chosen | {"alike": np.array([alike], np.float32)}

    def met(self, model: SolvedArrays, items: KnownItems) -> sp.csr_matrix:
        """float32 [U, I]: 1, or the weight, of each item of a user."""
        return matrix_of(items, self.view.num_items) if model.array("weighted")[0] else super().met(model, items)

    def _with_features(
        self, whole: sp.csr_matrix, weighted: bool, poll: Callable[[], None]
    ) -> tuple[float, sp.csr_matrix]:
        """The best of :data:`ALIKE` on the validation split, and the similarities with as much of those by features."""
        counts, rows = self.view.train_by_item.counts, comparable([*zip(*self._features(), strict=True)])
        by_features = alike_items(rows, counts)
        scale = float(whole.data.mean()) / max(float(by_features.data.mean()), 1e-12) if whole.nnz else 1.0
        cases = {str(each): (each, (whole + by_features * np.float32(each * scale)).tocsr()) for each in ALIKE}
        train, valid = known(self.view.train, self.view.train_weights), known(self.view.valid)
        if not len(valid.items):
            train, valid = take_out(train)
        train = train if weighted else KnownItems(train.indptr, train.items)
        met, users = matrix_of(train, self.view.num_items), np.flatnonzero(np.diff(valid.indptr) > 0)
        name, _, cut = self.settings.evaluation.selection_metric.partition("@")
        k = min(int(cut or 20), self.view.num_items)

        def value(case: tuple[float, sp.csr_matrix]) -> float:
            poll()
            scores = lambda part: scores_of(met[part], case[1])  # noqa: E731
            lists = rank_items(scores, self.view.num_items, train, valid, k, users=users, poll=poll)
            return lists.metrics([name], [k])[f"{name}@{k}"]

        values = {name: value(case) for name, case in cases.items()}
        kept = [name for name in cases if values[name] >= KEPT * max(values.values())]
        return cases[kept[-1]]

    def _features(self) -> tuple[list[np.ndarray], list[np.ndarray]]:
        names = list(self.view.features)
        return [np.asarray(self.view.features[n]) for n in names], [np.asarray(self.view.present[n]) for n in names]

    def candidates(self) -> np.ndarray:
        """Int64, ascending: items with a training interaction or features."""
        known_items = self.view.train_by_item.counts > 0
        return np.flatnonzero(np.any([known_items, *self._features()[1]], axis=0))

    def scores(self, model: SolvedArrays, met: sp.csr_matrix) -> Tensor:
        """The sum of the similarities of the items met."""
        return scores_of(met, weights_of(model.arrays))


def alike_items(rows: np.ndarray, counts: np.ndarray) -> sp.csr_matrix:
    """float32 [I, I]: for each item (column) its :data:`NEAREST` items by the products of ``rows`` float32 [I, f], times
    ``FEW / (FEW + n)`` for an item with ``counts`` n of interactions; negative products are left out."""
    parts, nearest = [], min(NEAREST, len(rows) - 1)
    for first in range(0, len(rows), BLOCK):
        block = rows[first : first + BLOCK] @ rows.T
        block[np.arange(len(block)), np.arange(first, first + len(block))] = -1
        kept = np.argpartition(-block, nearest, axis=1)[:, :nearest]
        values = np.maximum(np.take_along_axis(block, kept, 1), 0)
        values *= (FEW / (FEW + counts[first : first + BLOCK]))[:, None]
        places = np.repeat(np.arange(len(block)), nearest), kept.ravel()
        parts.append(sp.csr_matrix((values.ravel().astype(np.float32), places), block.shape))
    similar = sp.vstack(parts, "csr")
    similar.eliminate_zeros()
    return similar.T.tocsr()
