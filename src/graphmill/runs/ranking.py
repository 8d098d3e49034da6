"""The ranking of a run's held-out links, triples or items beside what it has to beat, as ``ranking.json`` in the run.

Which of the three it is follows from what the recipe offers; the file says so under ``kind``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, cast, runtime_checkable

from torch import nn

from graphmill.evaluation.baselines.links import DegreeScorer, RandomScorer
from graphmill.evaluation.ranking.comparison import RankingComparison, RankingThresholds, compare_to_baselines
from graphmill.evaluation.ranking.links import LinkRanking, link_queries, rank_links
from graphmill.runs.export import Restored, restore
from graphmill.runs.messages import Outlet
from graphmill.runs.recommender_baseline import NAME as BPR_MF
from graphmill.runs.recommender_baseline import bpr_mf_figures
from graphmill.runs.train import train

FILE = "ranking.json"
_METRIC = re.compile(
    r"(?:(?P<who>\w+?)_)?(?P<metric>(?:mrr|ndcg|ndcg_kgat|hr|hit|hits|recall|precision|map|coverage|popularity_bias)(?:@\d+)?)"
)


@runtime_checkable
class RanksTriples(Protocol):
    """A recipe on triples that has a report of its own: both sides, per relation, per degree."""

    def ranking_report(
        self, model: nn.Module, split: str, ks: Sequence[int], poll: Callable[[], None]
    ) -> dict[str, Any]:
        """As :func:`graphmill.systems.conve.ranking.ranking_report`."""


@runtime_checkable
class RanksItems(Protocol):
    """A recipe that recommends items, whose ``evaluate`` names rivals and protocols by prefix."""

    def recommend(self, model: nn.Module, k: int, exclude_seen: Any = "auto") -> Any:
        """See ``recommendations``."""


@dataclass(frozen=True)
class RankedRun:
    """The rankings by name (model, degree, random, no_message) and their comparison."""

    rankings: dict[str, LinkRanking]
    comparison: RankingComparison
    epoch: int

    def mrr_beside_baselines(self) -> dict[str, float]:
        """Macro MRR by scorer."""
        return {name: ranking.macro["mrr"] for name, ranking in self.rankings.items()}

    def to_dict(self) -> dict[str, Any]:
        """Plain values for report files."""
        return {
            "kind": "links",
            "epoch": self.epoch,
            "comparison": self.comparison.to_dict(),
            "rankings": {name: ranking.to_dict() for name, ranking in self.rankings.items()},
        }


def rank_any(
    restored: Restored,
    split: str = "test",
    *,
    outlets: Sequence[Outlet] = (),
    poll: Callable[[], None] = lambda: None,
) -> dict[str, Any]:
    """Rank what this run's recipe ranks and write ``ranking.json``; returns its main figures.

    Links (:func:`rank_run`); triples on both sides; or items, whose figures are grouped by who made them:
    ``figures`` {"model", "sampled", "popularity", ...: {metric: value}}.
    """
    recipe, about = restored.recipe, {**restored.used, "split": split}
    if isinstance(recipe, RanksTriples):
        ks = tuple(restored.job.settings.evaluation.top_k)
        report = cast(RanksTriples, recipe).ranking_report(restored.model, split, ks, poll)
        restored.run.write_json(FILE, {"kind": "triples", **about, **report})
        return {**about, "mrr": {"model": report["both"]["mrr"], "frequency": report["baseline"]["mrr"]}}
    if isinstance(recipe, RanksItems):
        found = recipe.evaluate(restored.model, split, final=True, poll=poll)
        found |= {f"{BPR_MF}_{name}": value for name, value in bpr_mf_figures(restored, split, outlets=outlets).items()}
        figures = grouped(found)
        about["selected_on"] = restored.selected_on
        about["repeat_share"] = found.get("repeat_share", 0.0)
        restored.run.write_json(FILE, {"kind": "items", **about, "figures": figures})
        return {**about, "figures": figures["model"], "beside": figures}
    ranked = rank_run(restored, split, outlets=outlets)
    return {**about, "epoch": ranked.epoch, "mrr": ranked.mrr_beside_baselines()}


def grouped(figures: dict[str, float]) -> dict[str, dict[str, float]]:
    """``{"ndcg@10": a, "popularity_ndcg@10": b}`` → ``{"model": {"ndcg@10": a}, "popularity": {"ndcg@10": b}}``.

    What is no ranking metric is left out.
    """
    out: dict[str, dict[str, float]] = {"model": {}}
    for name, value in figures.items():
        if match := _METRIC.fullmatch(name):
            out.setdefault(match["who"] or "model", {})[match["metric"]] = value
    return out


def rank_run(
    restored: Restored,
    split: str = "test",
    *,
    baseline_without_messages: bool = True,
    thresholds: RankingThresholds | None = None,
    outlets: Sequence[Outlet] = (),
) -> RankedRun:
    """Rank a run's held-out links. Writes ``ranking.json`` into the run directory.

    ``baseline_without_messages`` trains the same settings with no layers, in a folder of its own beside the run
    directories; it is reused as any run is, so it costs its time once.
    """
    settings = restored.job.settings
    queries = link_queries(restored.graph, split)
    ks = tuple(settings.evaluation.top_k)
    seed = settings.training.seed
    rankings = {
        "model": rank_links(restored.recipe.scorer(restored.model), queries, ks=ks, seed=seed),
        "degree": rank_links(DegreeScorer(queries), queries, ks=ks, seed=seed),
        "random": rank_links(RandomScorer(queries, seed), queries, ks=ks, seed=seed),
    }
    without_messages = getattr(settings, "without_messages", None)
    if baseline_without_messages and without_messages is not None and settings.model.num_layers:
        values = without_messages().model_dump() | {"preset": "none"}
        root = restored.run.path.parent / "without_messages"
        result = train(values, "the baseline without message passing", root=str(root), outlets=outlets)
        other = restore(result["run_dir"])
        rankings["no_message"] = rank_links(other.recipe.scorer(other.model), queries, ks=ks, seed=seed)
    comparison = compare_to_baselines(
        rankings["model"],
        rankings["degree"],
        rankings["random"],
        rankings.get("no_message"),
        thresholds=thresholds,
    )
    ranked = RankedRun(rankings, comparison, restored.epoch)
    restored.run.write_json(FILE, {**ranked.to_dict(), **restored.used})
    return ranked
