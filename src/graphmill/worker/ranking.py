"""The link ranking of a run beside degree-only, random, and the same model without message passing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from graphmill.evaluation.baselines import DegreeScorer, RandomScorer
from graphmill.evaluation.comparison import RankingComparison, RankingThresholds, compare_to_baselines
from graphmill.evaluation.ranking import LinkRanking, link_queries, rank_links
from graphmill.worker.export import Restored, restore
from graphmill.worker.messages import Outlet
from graphmill.worker.run import train


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
            "epoch": self.epoch,
            "comparison": self.comparison.to_dict(),
            "rankings": {name: ranking.to_dict() for name, ranking in self.rankings.items()},
        }


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
    restored.run.write_json("ranking.json", ranked.to_dict())
    return ranked
