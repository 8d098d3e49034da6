"""The system of iALS. All iterations are its one step: the library implicit does them in compiled threads."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from graphmill.errors import SettingsError
from graphmill.graph.typed_graph import TypedGraph
from graphmill.systems.base_system import blocks_of
from graphmill.systems.ials.settings import IalsSettings
from graphmill.systems.recommenders.closed_form import ItemClosedForm, matrix_of
from graphmill.systems.recommenders.evaluate import known
from graphmill.systems.recommenders.fold_in import FoldIn, Folding
from graphmill.training.contract import EmbeddingBlock
from graphmill.training.solved import SolvedArrays

REGULARISATIONS = (0.001, 0.003, 0.01, 0.03)
WITHOUT_VALIDATION = 0.01


class IalsSystem(ItemClosedForm):
    """``user`` float32 [U, d] and ``item`` float32 [I, d]; ``regularisation`` [1].

    A user's scores follow from the history alone: the vector is solved for the items' vectors, as in training.
    """

    ARRAYS = ("user", "item", "regularisation")
    rotation_keeps_scores = True
    settings: IalsSettings

    def __init__(self, graph: TypedGraph, settings: IalsSettings, batching: str) -> None:
        """Raises SettingsError if the library is not installed."""
        if importlib.util.find_spec("implicit") is None:
            raise SettingsError(
                'the system ials needs the package implicit: pip install "graphmill[ials]", or take the system mf'
            )
        super().__init__(graph, settings, batching)

    def penalty(self, regularisation: float) -> float:
        """λ as one number for users and items, which is all that the library takes."""
        m, size = self.settings.model, (self.view.num_users, self.view.num_items)
        rows = [len(self.view.train) / count + m.unobserved_weight * other for count, other in (size, size[::-1])]
        return regularisation * float(np.mean(rows))

    def fitted(self, poll: Callable[[], None]) -> Mapping[str, np.ndarray]:
        """The vectors of both sides, and λ by validation if the setting is 0."""
        written = self.settings.model.regularisation
        met = matrix_of(known(self.view.train), self.view.num_items)
        if written or not len(self.view.valid):
            return self._fit(met, written or WITHOUT_VALIDATION, poll)
        metric, best = self.settings.evaluation.selection_metric, (-1.0, dict[str, np.ndarray]())
        for regularisation in REGULARISATIONS:
            arrays = self._fit(met, regularisation, poll)
            score = partial(self._scores_of_users, met, arrays["item"], regularisation)
            value = self.evaluator.evaluate(score, "valid", final=False, poll=poll)[metric]
            best = max(best, (value, arrays), key=lambda each: each[0])
        return best[1]

    def sampled_seconds(self) -> float:
        """By the time of one iteration."""
        met, m = matrix_of(known(self.view.train), self.view.num_items), self.settings.model
        started = time.perf_counter()
        self._fit(met, WITHOUT_VALIDATION, lambda: None, 1)
        tried = 1 if m.regularisation or not len(self.view.valid) else len(REGULARISATIONS)
        return (time.perf_counter() - started) * m.iterations * tried

    def _fit(
        self, met: sp.csr_matrix, regularisation: float, poll: Callable[[], None], iterations: int = 0
    ) -> dict[str, np.ndarray]:
        """The vectors after so many iterations, 0: those of the settings."""
        from implicit.cpu.als import AlternatingLeastSquares
        from threadpoolctl import threadpool_limits

        m = self.settings.model
        # The library weighs what was met by 1 + 1 / α beside 1 for the rest.
        with threadpool_limits(1, "blas"):  # the library's threads would wait for those of its products
            solver = AlternatingLeastSquares(
                factors=m.embedding_dim,
                regularization=self.penalty(regularisation) / m.unobserved_weight,
                alpha=1.0 + 1.0 / m.unobserved_weight,
                iterations=iterations or m.iterations,
                num_threads=torch.get_num_threads(),
                random_state=self.settings.training.seed,
            )
            solver.fit(met, show_progress=False, callback=lambda *_: poll())
        tables = {"user": np.array(solver.user_factors), "item": np.array(solver.item_factors)}
        return {**tables, "regularisation": np.array([regularisation], np.float32)}

    def scores(self, model: SolvedArrays, met: sp.csr_matrix) -> Tensor:
        """Products of the items' vectors with those that fit the items met."""
        return self._scores(model.array("item"), float(model.array("regularisation")[0]), met)

    def _scores_of_users(
        self, met: sp.csr_matrix, items: np.ndarray, regularisation: float, users: np.ndarray
    ) -> Tensor:
        return self._scores(items, regularisation, met[users])

    def _scores(self, items: np.ndarray, regularisation: float, met: sp.csr_matrix) -> Tensor:
        folding = Folding(items, self.view.train_by_item.counts)
        setting = FoldIn(self.settings.model.unobserved_weight, self.penalty(regularisation) / folding.size)
        return torch.from_numpy(folding(met, setting).astype(np.float32) @ items.T)

    def health(self, model: SolvedArrays) -> dict[str, float]:
        """Participation ratio, mean cosine and rank of the vectors."""
        tables = model.array("user"), model.array("item")
        return self.health_of(np.concatenate(tables), np.repeat([0, 1], [len(table) for table in tables]))

    def embeddings(self, model: SolvedArrays) -> Iterator[EmbeddingBlock]:
        """Vectors of users and items, in the graph's order; zero for other nodes."""
        rows = np.zeros((self.graph.num_nodes, self.settings.model.embedding_dim), np.float32)
        for name, first in (("user", self.view.user_offset), ("item", self.view.item_offset)):
            vectors = model.array(name)
            rows[first : first + len(vectors)] = vectors
        return blocks_of(rows)
