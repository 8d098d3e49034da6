"""The metrics of a recommender on one split: full ranking, coverage and popularity bias, and the baselines."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from graphmill.evaluation.baselines.recommendation import FAMILIES, ItemBaseline, ItemModels, tune_item_baselines
from graphmill.evaluation.ranking.items import ItemLists, rank_items
from graphmill.evaluation.ranking.recommendation import KnownItems, ScoreBlock
from graphmill.graph.interactions import CsrPattern, Interactions
from graphmill.sampling.keyed import sampled
from graphmill.systems.recommenders.settings import METRICS, ClosedFormRecommenderSettings, RecommenderSettings
from graphmill.training.allocator import trim

QUERY_SEED = 2024
"""The sample of users that is asked while training is the same for every model, run and seed of a data set."""


class RecommenderEvaluator:
    """Ranks all items for the users of a split. ``evaluation.max_queries`` limits their number during training."""

    def __init__(self, view: Interactions, settings: RecommenderSettings | ClosedFormRecommenderSettings) -> None:
        self.view, self.settings = view, settings
        self._lists: dict[tuple[str, str], ItemLists] = {}
        self._poll: Callable[[], None] = lambda: None

    def evaluate(
        self, score: ScoreBlock, split: str, *, final: bool, poll: Callable[[], None] = lambda: None
    ) -> dict[str, float]:
        """``score``: users int64 [b] → scores of all items [b, I]. Empty if the split has no users.

        During training: the selected metrics. ``final``: all metrics, those of the catalogue (``coverage``,
        ``popularity_bias``), ``repeat_share`` if held-out items were left out as known, and each baseline
        (``popularity_``, ``item_knn_``, ``ease_``).
        """
        evaluation, held_out = self.settings.evaluation, self.view.held_out(split)
        self._poll = poll
        if not len(held_out):
            return {}
        names = METRICS if final else tuple(evaluation.metrics)
        ks = [k for k in evaluation.top_k if k <= self.view.num_items]
        lists = self.lists(score, split, final=final)
        out = lists.metrics(names, ks)
        if not final:
            return out
        self._lists[split, "model"] = lists
        if share := self.view.repeat_share:
            out["repeat_share"] = share
        out |= lists.catalogue(self.view.train_by_item.counts, known(held_out), ks)
        for name in self.baselines:
            metrics = self.baseline_lists(name, split).metrics(names, ks)
            out |= {f"{name}_{metric}": value for metric, value in metrics.items()}
        return out

    def lists(self, score: ScoreBlock, split: str, *, final: bool = True) -> ItemLists:
        """The best items of each user of the split: enough for the largest ``top_k``."""
        evaluation, held_out = self.settings.evaluation, self.view.held_out(split)
        users = np.flatnonzero(held_out.counts > 0)
        if not final and evaluation.max_queries:
            users = sampled(users, evaluation.max_queries, QUERY_SEED, "users", split)
        masked = known(self.view.train)
        depth = max(evaluation.top_k)
        return rank_items(score, self.view.num_items, masked, known(held_out), depth, users=users, poll=self._poll)

    def baseline_lists(self, name: str, split: str) -> ItemLists:
        """A baseline's lists on the split, computed once."""
        if (split, name) not in self._lists:
            score = self.baselines[name].scores(self._models)
            self._models.__dict__.pop("together", None)  # large, and the other settings are not needed
            self._lists[split, name] = self.lists(score, split)
        return self._lists[split, name]

    def all_lists(self, split: str, more: Mapping[str, ScoreBlock]) -> dict[str, ItemLists]:
        """The lists of the model of the last final evaluation, of each baseline, and of ``more`` scorers."""
        lists = {"model": self._lists[split, "model"]}
        lists |= {name: self.baseline_lists(name, split) for name in self.baselines}
        return lists | {name: self.lists(score, split) for name, score in more.items()}

    def by_query(self, split: str, metric: str) -> dict[str, NDArray[np.float64]]:
        """``metric`` of each user of the split, for the model of the last final evaluation and for each baseline."""
        name, _, k = metric.partition("@")
        return {who: lists.by_user(name, int(k)) for who, lists in self.all_lists(split, {}).items()}

    @cached_property
    def baselines(self) -> dict[str, ItemBaseline]:
        """The selected baseline predictors, with their best settings on validation."""
        train, valid, evaluation = (
            known(self.view.train, self.view.train_weights),
            known(self.view.valid),
            self.settings.evaluation,
        )
        wanted = [name for name in FAMILIES if name in evaluation.baselines and name != self.settings.system]
        tuned = tune_item_baselines(
            train, valid, self.view.num_items, evaluation.selection_metric, self._poll, wanted=wanted
        )
        if wanted:
            trim()
        return tuned

    @cached_property
    def _models(self) -> ItemModels:
        return ItemModels(known(self.view.train, self.view.train_weights), self.view.num_items)


def known(rows: CsrPattern, weights: np.ndarray | None = None) -> KnownItems:
    """Rows of the graph in the form that the evaluation requires; ``weights`` float32 [entries]."""
    return KnownItems(rows.indptr, rows.columns.astype(np.int64), weights)
