"""The base of recommenders in closed form: the score of an item follows from the items that a user has met."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import scipy.sparse as sp
from torch import Tensor

from graphmill.evaluation.baselines.recommendation import ItemBaseline, tune_item_baselines
from graphmill.evaluation.ranking.recommendation import ExcludeSeen, KnownItems, excluded, of_all, top_k
from graphmill.graph.histories import Histories
from graphmill.graph.interactions import interaction_view
from graphmill.graph.typed_graph import TypedGraph
from graphmill.systems.closed_form import ClosedFormSystem, of_items, with_popularity
from graphmill.systems.recommenders.evaluate import RecommenderEvaluator, known
from graphmill.systems.recommenders.settings import ClosedFormRecommenderSettings
from graphmill.systems.recommenders.system import recommended, require_cut_off
from graphmill.training.contract import OldRows
from graphmill.training.solved import SolvedArrays


class ItemClosedForm(ClosedFormSystem):
    """A subclass fits the arrays and gives :meth:`scores`. New users are scored by their history like known ones."""

    def __init__(self, graph: TypedGraph, settings: ClosedFormRecommenderSettings, batching: str) -> None:
        """Raises :func:`require_cut_off`'s error."""
        super().__init__(graph, settings)
        self.view = interaction_view(graph)
        require_cut_off(settings, self.view.num_items)
        self.evaluator = RecommenderEvaluator(self.view, settings)

    @abstractmethod
    def scores(self, model: SolvedArrays, met: sp.csr_matrix) -> Tensor:
        """``met`` [B, I] of :meth:`met`: the items that users have met → scores fp32 [B, I]."""

    def met(self, model: SolvedArrays, items: KnownItems) -> sp.csr_matrix:
        """float32 [U, I]: 1 for each item of a user."""
        return matrix_of(KnownItems(items.indptr, items.items), self.view.num_items)

    def carried_over(self, arrays: Mapping[str, np.ndarray], old: OldRows) -> tuple[dict[str, np.ndarray], int]:
        """By item."""
        rows = old.of_type[self.view.item_offset :][: self.view.num_items]
        return of_items(arrays, rows), int((rows < 0).sum())

    def chosen(self, name: str, poll: Callable[[], None]) -> ItemBaseline:
        """The setting of the predictor ``name`` that is best on validation, by the metric that chooses epochs."""
        train, valid = known(self.view.train, self.view.train_weights), known(self.view.valid)
        metric = self.settings.evaluation.selection_metric
        return tune_item_baselines(train, valid, self.view.num_items, metric, poll, wanted=[name])[name]

    def scorer(self, model: SolvedArrays) -> ItemScorer:
        """Scores of users by their training items."""
        return ItemScorer(self, model)

    def evaluate(self, model: SolvedArrays, split: str, *, final: bool, poll: Callable[[], None]) -> dict[str, float]:
        """Full-ranking metrics; with ``final`` also metrics of the catalogue and the other baselines."""
        return self.evaluator.evaluate(self.scorer(model).of_users, split, final=final, poll=poll)

    def held_out(self, split: str) -> int:
        """The number of held-out pairs."""
        return len(self.view.held_out(split))

    def candidates(self) -> np.ndarray:
        """Int64, ascending: items with a training interaction; of others nothing is known."""
        return np.flatnonzero(self.view.train_by_item.counts > 0)

    def recommend(
        self, model: SolvedArrays, k: int, exclude_seen: ExcludeSeen = "auto"
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """:func:`recommended` of :meth:`candidates`."""
        scorer, counts = self.scorer(model), self.view.train_by_item.counts
        score = lambda users: with_popularity(scorer.of_users(users), counts)  # noqa: E731
        return recommended(self.view, score, self.candidates(), k, exclude_seen)

    def fold_in(
        self, model: SolvedArrays, histories: Histories, k: int, exclude_seen: ExcludeSeen = "auto"
    ) -> tuple[np.ndarray, np.ndarray, dict[str, Any]]:
        """Items int64 [U, k] (local numbers; −1: none left), scores [U, k], and an empty note. Items that the training
        has not seen are left out, and so are users who have met no other."""
        candidates = self.candidates()
        histories = histories.take(np.isin(histories.items, candidates))
        queried = np.flatnonzero(np.diff(histories.indptr) > 0)
        met = self.met(model, KnownItems(histories.indptr, histories.items, histories.weights))
        seen = KnownItems(met.indptr.astype(np.int64), met.indices.astype(np.int64))
        seen = excluded(seen, histories.disliked, exclude_seen != "never")
        counts = self.view.train_by_item.counts
        score = lambda users: with_popularity(self.scores(model, met[users]), counts)  # noqa: E731
        lists = top_k(score, queried, self.view.num_items, seen, k, candidates)
        return *of_all(met.shape[0], queried, *lists), {}


def matrix_of(items: KnownItems, num_items: int) -> sp.csr_matrix:
    """float32 [U, I]: 1 for each item of a user, repeated or not; or the mean of its weights, if there are any."""
    shape = len(items.indptr) - 1, num_items
    times = sp.csr_matrix((np.ones(len(items.items), np.float32), items.items, items.indptr), shape, copy=True)
    times.sum_duplicates()
    total = times.copy()
    if items.weights is not None:
        total = sp.csr_matrix((items.weights, items.items, items.indptr), shape, copy=True)
        total.sum_duplicates()
    total.data /= times.data
    return total


class ItemScorer:
    """Scores of known users."""

    def __init__(self, system: ItemClosedForm, model: SolvedArrays) -> None:
        self.system, self.model = system, model
        self.met = system.met(model, known(system.view.train, system.view.train_weights))

    def of_users(self, users: np.ndarray) -> Tensor:
        """Local user numbers int64 [B] → fp32 [B, I]."""
        return self.system.scores(self.model, self.met[users])

    def score_targets(self, relation: int, heads: np.ndarray) -> Tensor:
        """:meth:`of_users`; ``relation`` is 0, the only one."""
        return self.of_users(heads)
