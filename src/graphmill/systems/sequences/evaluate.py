"""The metrics of a sequence model on one split, by full ranking, and those of the baselines."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from graphmill.evaluation.baselines.next_item import NextItemBaselines, NextItemSplit, baseline_ranks, tune_baselines
from graphmill.evaluation.baselines.recommendation import ItemBaseline
from graphmill.evaluation.ranking.next_item import HistoryRanks, chosen_ranks, full_ranks
from graphmill.evaluation.ranking.recommendation import Int64
from graphmill.graph.interactions import require_items
from graphmill.graph.sequences import Sequences
from graphmill.sampling.keyed import sampled
from graphmill.systems.sequences.settings import METRICS

if TYPE_CHECKING:
    import torch

QUERY_SEED = 2024
"""Draws the queries of an evaluation during training: the same for every model, run and seed of a data set."""
TUNING_USERS = 5_000
"""Validation queries that are enough to choose a baseline's setting."""


class SequenceEvaluator:
    """Queries of each split, made once. ``evaluation.max_queries`` limits their number during training.

    ``settings``: those of a system whose section ``evaluation`` is a :class:`SequenceEvaluation`.
    """

    def __init__(self, sequences: Sequences, settings: Any) -> None:
        """Raises InputError for a single item."""
        require_items(settings.data, sequences.num_items)
        self.sequences, self.settings = sequences, settings
        self._splits: dict[str, NextItemSplit] = {}
        self._ranks: dict[tuple[str, str], HistoryRanks] = {}

    def split(self, name: str) -> NextItemSplit:
        """The queries of "valid" or "test"."""
        if name not in self._splits:
            s = self.sequences
            users, at = s.targets(name)
            self._splits[name] = NextItemSplit(users, s.items[at], s.indptr[users], at)
        return self._splits[name]

    @cached_property
    def baselines(self) -> NextItemBaselines:
        """The baseline predictors, fitted on the training interactions."""
        s = self.sequences
        train = s.split == 0
        times = None if s.timestamps is None else s.timestamps[train]
        return NextItemBaselines(
            s.users[train], s.items[train], s.num_users, s.num_items, times=times, repeats=s.repeats
        )

    def evaluate(self, score: Callable[[Int64, Int64], torch.Tensor], split: str, *, final: bool) -> dict[str, float]:
        """``score``: users int64 [b] and where their histories end int64 [b] → scores of all items [b, I].

        During training: the selected metrics by full ranking, which includes the user's history if users repeat items.
        ``final``: all metrics; metrics without targets whose time is tied, so that their order is that of the file
        (``untied_``); if there are targets that their user has met before: their share (``repeat_share``), metrics of
        these targets among all items (``repeated_``) and of the other targets among the items new to their user
        (``new_``); each baseline (``popularity_``, ``markov_``, ``session_knn_``, ``repeats_``), also with repeats
        separately.
        """
        evaluation = self.settings.evaluation
        queried = self.split(split)
        queries = np.arange(len(queried.users))
        if not final and evaluation.max_queries:
            queries = sampled(queries, evaluation.max_queries, QUERY_SEED, "queries", split)
        names, ks = METRICS if final else tuple(evaluation.metrics), evaluation.top_k
        known = queried.known(self.sequences.items)
        items = self.sequences.num_items

        def block(rows: Int64) -> torch.Tensor:
            return score(queried.users[rows], queried.stop[rows])

        by_history = full_ranks(block, queries, queried.targets[queries], items, known)
        ranks = chosen_ranks(by_history, self.sequences.repeats)
        out = ranks.metrics(names, ks)
        if not final:
            return out
        self._ranks[split, "model"] = by_history
        untied = ~self.sequences.same_second()[queried.stop]
        if not untied.all():
            out |= _prefixed("untied", ranks.take(untied).metrics(names, ks))
        if by_history.repeated.any():
            out |= {"repeat_share": float(by_history.repeated.mean())} | _apart("", by_history, names, ks)
        for name, baseline in self.tuned.items():
            if (split, name) not in self._ranks:
                history = self.sequences.items
                self._ranks[split, name] = baseline_ranks(self.baselines, baseline.scores, queried, history)
            by_history = self._ranks[split, name]
            out |= _prefixed(name, chosen_ranks(by_history, self.sequences.repeats).metrics(names, ks))
            if by_history.repeated.any():
                out |= _apart(f"_{name}", by_history, names, ks)
        return out

    def by_query(self, split: str, metric: str) -> dict[str, NDArray[np.float64]]:
        """``metric`` of each query of the split, for the model of the last final evaluation and for each baseline."""
        name, _, k = metric.partition("@")
        of_split = {who: ranks for (each, who), ranks in self._ranks.items() if each == split}
        chosen = {who: chosen_ranks(ranks, self.sequences.repeats) for who, ranks in of_split.items()}
        return {who: ranks.values([name], [int(k or 1)])[metric] for who, ranks in chosen.items()}

    @cached_property
    def tuned(self) -> dict[str, ItemBaseline]:
        """The selected baseline predictors, with their best settings on validation (on a seeded sample of its queries)."""
        wanted = [name for name in self.settings.evaluation.baselines if name != self.settings.system]
        return self.tuned_on_validation(wanted) if wanted else {}

    def tuned_on_validation(self, wanted: list[str]) -> dict[str, ItemBaseline]:
        """The predictors ``wanted`` with their best settings on validation."""
        valid = self.split("valid")
        valid = valid.take(sampled(np.arange(len(valid.users)), TUNING_USERS, QUERY_SEED, "tuning users"))
        return tune_baselines(self.baselines, valid, self.sequences.items, wanted=wanted)


class HistoryScorer:
    """Scores of every item after a user's whole history; ``relation`` is 0, the only one.

    ``score``: users int64 [b] and where their histories end int64 [b] → scores of all items [b, I].
    """

    def __init__(self, sequences: Sequences, score: Callable[[Int64, Int64], torch.Tensor]) -> None:
        self.indptr, self.score = sequences.indptr, score

    def score_targets(self, relation: int, heads: np.ndarray) -> torch.Tensor:
        """Local user numbers int64 [B], each with a history → fp32 [B, I]."""
        return self.score(heads, self.indptr[heads + 1])


def _apart(who: str, by_history: HistoryRanks, names: tuple[str, ...], ks: list[int]) -> dict[str, float]:
    """Ranks of targets that their user has met, among all items; and of the others, among the items new to their user."""
    out = _prefixed(f"repeated{who}", by_history.unmasked.take(by_history.repeated).metrics(names, ks))
    if not by_history.repeated.all():
        out |= _prefixed(f"new{who}", by_history.take(~by_history.repeated).metrics(names, ks))
    return out


def _prefixed(prefix: str, metrics: dict[str, float]) -> dict[str, float]:
    return {f"{prefix}_{name}": value for name, value in metrics.items()}
