"""The systems of next items in closed form: scores follow from the items that a user has taken, in order."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from torch import Tensor

from graphmill.errors import InputError
from graphmill.evaluation.baselines.next_item import (
    NextItemBaselines,
    NextItemSplit,
    compact,
    markov_scores,
    recent_scores,
    repeat_scores,
)
from graphmill.evaluation.ranking.recommendation import ExcludeSeen, KnownItems, ScoreBlock, excluded, of_all, top_k
from graphmill.graph.histories import Histories
from graphmill.graph.interactions import interaction_relation
from graphmill.graph.sequences import sequence_view
from graphmill.graph.typed_graph import TypedGraph
from graphmill.systems.closed_form import ClosedFormSystem, arrays_of, matrix_of, of_items, with_popularity
from graphmill.systems.next_item.settings import MarkovSettings, NextItemSettings, RepeatsSettings, SessionKnnSettings
from graphmill.systems.sequences.evaluate import HistoryScorer, SequenceEvaluator
from graphmill.training.contract import OldRows
from graphmill.training.planning import Part, Setup
from graphmill.training.solved import SolvedArrays


class NextItemSystem(ClosedFormSystem):
    """A subclass fits the arrays and gives :meth:`scores`. ``FAMILY``: its name among the baselines of sequence models."""

    FAMILY: ClassVar[str]

    def __init__(self, graph: TypedGraph, settings: NextItemSettings, batching: str) -> None:
        super().__init__(graph, settings)
        self.sequences = sequence_view(graph)
        self.evaluator = SequenceEvaluator(self.sequences, settings)

    @abstractmethod
    def scores(self, model: SolvedArrays, split: NextItemSplit, items: np.ndarray) -> ScoreBlock:
        """Numbers of queries of ``split``, whose histories are in ``items`` → scores of all items."""

    def carried_over(self, arrays: Mapping[str, np.ndarray], old: OldRows) -> tuple[dict[str, np.ndarray], int]:
        """By item."""
        rows = old.of_type[self.sequences.item_offset :][: self.sequences.num_items]
        return of_items(arrays, rows), int((rows < 0).sum())

    @property
    def predictors(self) -> NextItemBaselines:
        """The predictors, fitted on the training interactions."""
        return self.evaluator.baselines

    def chosen(self) -> Mapping[str, float]:
        """The settings that are best on validation."""
        return self.evaluator.tuned_on_validation([self.FAMILY])[self.FAMILY].values

    @cached_property
    def candidates(self) -> np.ndarray:
        """Int64, ascending: items with a training interaction; of others nothing is known."""
        return np.flatnonzero(self.predictors.popularity > 0)

    def scorer(self, model: SolvedArrays) -> HistoryScorer:
        """Scores after each user's whole history."""
        return HistoryScorer(self.sequences, self.score_at(model))

    def score_at(
        self, model: SolvedArrays, poll: Callable[[], None] = lambda: None
    ) -> Callable[[np.ndarray, np.ndarray], Tensor]:
        """Users int64 [b] and the ends of their histories int64 [b] → scores of all items [b, I]."""
        s = self.sequences

        def score(users: np.ndarray, ends: np.ndarray) -> Tensor:
            poll()
            split = NextItemSplit(users, np.zeros(len(users), np.int64), s.indptr[users], ends)
            return self.scores(model, split, s.items)(np.arange(len(users)))

        return score

    def evaluate(self, model: SolvedArrays, split: str, *, final: bool, poll: Callable[[], None]) -> dict[str, float]:
        """Full-ranking metrics; with ``final`` also those of the other baselines."""
        return self.evaluator.evaluate(self.score_at(model, poll), split, final=final)

    def held_out(self, split: str) -> int:
        """The number of users with a held-out item."""
        return len(self.evaluator.split(split).users)

    def recommend(
        self, model: SolvedArrays, k: int, exclude_seen: ExcludeSeen = "auto"
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """For every user with a history, the ``k`` best next items. ``auto``: items of the history are left out, unless
        users repeat items (:attr:`Sequences.repeats`).

        Users int64 [U] and items int64 [U, k] are global node numbers, best first (−1: none left); scores [U, k].
        """
        s = self.sequences
        users = np.flatnonzero(np.diff(s.indptr) > 0)
        whole = Histories(s.indptr, s.items, np.arange(s.num_users), disliked=s.disliked)
        items, scores, _ = self.fold_in(model, whole, k, exclude_seen)
        return users + s.user_offset, np.where(items >= 0, items + s.item_offset, -1)[users], scores[users]

    def fold_in(
        self, model: SolvedArrays, histories: Histories, k: int, exclude_seen: ExcludeSeen = "auto"
    ) -> tuple[np.ndarray, np.ndarray, dict[str, Any]]:
        """Items int64 [U, k] (local numbers; −1: none left), scores [U, k], and an empty note. Items that the training
        has not seen are left out, and so are users who have taken no other."""
        s = self.sequences
        histories = histories.take(np.isin(histories.items, self.candidates))
        queried = np.flatnonzero(np.diff(histories.indptr) > 0)
        users = np.arange(len(histories.known))
        split = NextItemSplit(users, np.zeros(len(users), np.int64), histories.indptr[:-1], histories.indptr[1:])
        exclude = exclude_seen == "always" or (exclude_seen == "auto" and not s.repeats)
        seen = excluded(KnownItems(histories.indptr, histories.items), histories.disliked, exclude)
        scores, counts = self.scores(model, split, histories.items), self.predictors.popularity
        score = lambda rows: with_popularity(scores(rows), counts)  # noqa: E731
        lists = top_k(score, queried, s.num_items, seen, k, self.candidates)
        return *of_all(len(users), queried, *lists), {}


class MarkovSystem(NextItemSystem):
    """Transitions [I, I] as rows: ``indptr`` int64 [I + 1], ``items`` int32 and ``weights`` float32 [nnz];
    ``popularity`` float32 [I]; ``back_off`` [1]."""

    FAMILY = "markov"
    ARRAYS = ("indptr", "items", "weights", "popularity", "back_off")
    settings: MarkovSettings

    def fitted(self, poll: Callable[[], None]) -> Mapping[str, np.ndarray]:
        """The transitions, and the back-off by validation if the setting is 0."""
        back_off = self.settings.model.back_off or self.chosen()["back_off"]
        rest = {"popularity": self.predictors.popularity, "back_off": np.array([back_off], np.float32)}
        return arrays_of(self.predictors.transitions) | rest

    def scores(self, model: SolvedArrays, split: NextItemSplit, items: np.ndarray) -> ScoreBlock:
        """P(next | last item) + back-off · P(item)."""
        back_off = float(model.array("back_off")[0])
        return markov_scores(matrix_of(model.arrays), model.array("popularity"), split, items, back_off)


class SessionKnnSystem(NextItemSystem):
    """Cosines [I, I] as rows: ``indptr`` int64 [I + 1], ``items`` int32 and ``weights`` float32 [nnz]; ``neighbours``
    and ``history`` [1]."""

    FAMILY = "session_knn"
    ARRAYS = ("indptr", "items", "weights", "neighbours", "history")
    settings: SessionKnnSettings

    def fitted(self, poll: Callable[[], None]) -> Mapping[str, np.ndarray]:
        """The cosines, and the settings that are 0 by validation."""
        neighbours, history = self.settings.model.neighbours, self.settings.model.history
        if not (neighbours and history):
            best = self.chosen()
            neighbours, history = neighbours or int(best["neighbours"]), history or int(best["history"])
        weights = sp.csr_matrix(self.predictors.neighbours(neighbours))
        return arrays_of(weights) | {"neighbours": np.array([neighbours]), "history": np.array([history])}

    def scores(self, model: SolvedArrays, split: NextItemSplit, items: np.ndarray) -> ScoreBlock:
        """The sum of the cosines to the last items."""
        return recent_scores(compact(matrix_of(model.arrays)), split, items, int(model.array("history")[0]))


class RepeatsSystem(NextItemSystem):
    """``popularity`` float32 [I]: training counts, which order the items that a user has not taken; ``decay`` [1]."""

    FAMILY = "repeats"
    ARRAYS = ("popularity", "decay")
    settings: RepeatsSettings

    def __init__(self, graph: TypedGraph, settings: RepeatsSettings, batching: str) -> None:
        """Raises InputError if users do not repeat items."""
        super().__init__(graph, settings, batching)
        if not self.sequences.repeats:
            raise InputError(
                f"{graph.path}: users seldom take the same item again ({self.sequences.repeat_share:.1%} of their "
                "interactions), so repeats predict nothing; take the system markov or session_knn"
            )

    def fitted(self, poll: Callable[[], None]) -> Mapping[str, np.ndarray]:
        """The counts, and the decay by validation if the setting is 0."""
        decay = self.settings.model.decay or self.chosen()["decay"]
        return {"popularity": self.predictors.popularity, "decay": np.array([decay], np.float32)}

    def scores(self, model: SolvedArrays, split: NextItemSplit, items: np.ndarray) -> ScoreBlock:
        """The repeats of the user's own items."""
        return repeat_scores(model.array("popularity"), split, items, float(model.array("decay")[0]))


def memory_parts(graph: TypedGraph, settings: NextItemSettings, setup: Setup) -> list[Part]:
    """The parts of one process. Pairs of items count with their common users, each pair once at most."""
    relation = interaction_relation(graph)
    counts = np.bincount(np.asarray(graph.edges(relation).src)).astype(float)
    items, edges = graph.node_type(relation.target).count, counts.sum()
    pairs = (
        min(float(np.square(counts).sum()), float(items) ** 2) if isinstance(settings, SessionKnnSettings) else edges
    )
    return [
        Part("pairs of items", "always", pairs, 24, remedy="take the system markov, or leave items out of the graph"),
        Part("interactions", "always", edges, 64),
        Part("scores of an evaluation", "evaluation", 5 << 20),
    ]
