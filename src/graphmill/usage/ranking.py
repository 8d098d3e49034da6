"""Ranks a run's held-out links, triples or items beside its baselines, and writes ``ranking.json`` into the run.

The system's methods decide which of the three it is. ``kind`` in the file names it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, cast, runtime_checkable

from torch import nn

from graphmill.evaluation.baselines.links import DegreeScorer, RandomScorer
from graphmill.evaluation.ranking.comparison import RankingComparison, compare_to_baselines
from graphmill.evaluation.ranking.links import AUC_NEGATIVES, LinkRanking, rank_links
from graphmill.evaluation.ranking.names import SIMPLER, grouped
from graphmill.evaluation.ranking.queries import LinkQueries, link_queries
from graphmill.evaluation.ranking.ranks import Scorer
from graphmill.reports.card import write_card
from graphmill.runs.copies import copy_run
from graphmill.runs.export import Restored
from graphmill.runs.messages import Outlet
from graphmill.systems.registry import entry
from graphmill.training.signals import StopRequest
from graphmill.usage.link_baselines import LinkBaselines
from graphmill.usage.recommendations import Recommends
from graphmill.usage.recommender_baseline import NAME as MF
from graphmill.usage.recommender_baseline import mf_figures, rival_mf
from graphmill.verified_files import MANIFEST as EXPORTED

FILE = "ranking.json"
SPECTRAL_WIDTH = 128
"""Width of the baseline's spectral vectors, if the model has no vectors."""


@runtime_checkable
class RanksTriples(Protocol):
    """A system on triples with its own report: both sides, per relation, per degree."""

    def ranking_report(
        self,
        model: nn.Module,
        split: str,
        ks: Sequence[int],
        poll: Callable[[], None],
        baselines: Mapping[str, LinkRanking] | None = None,
    ) -> dict[str, Any]:
        """See :func:`graphmill.systems.conve.ranking.ranking_report`."""


@runtime_checkable
class AsksLinks(Protocol):
    """A system that defines its own ranking queries. Other systems are queried for the tails of every relation."""

    def ranking_queries(self, split: str, limit: int = 0) -> LinkQueries:
        """The queries of a split. ``limit``: largest number of queries per relation, 0 for all."""


@dataclass(frozen=True)
class RankedRun:
    """The rankings by name (model, degree, knn, spectral, complex, random) and their comparison."""

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
    stop: StopRequest | None = None,
) -> dict[str, Any]:
    """Rank the held-out data of a run, write ``ranking.json`` and the card, and return the main metrics.

    It ranks links (:func:`rank_run`), triples on both sides, or items. For items, ``figures`` groups metrics by scorer
    or protocol: {"model", "sampled", "popularity", ...: {metric: value}}. Links and triples have ``mrr`` by scorer, and
    ``macro``, ``micro``, ``against``, ``strata``, ``ratios`` and ``verdicts`` as in ``ranking.json``. ``stop`` ends a
    training of a baseline. If ``export.copy_to`` is set, the run is copied again.
    """
    found = _rank_any(restored, split, outlets=outlets, poll=poll, stop=stop)
    if (restored.export_folder / EXPORTED).is_file():
        write_card(restored.run.path)
    copy_run(restored)
    return found


def _rank_any(
    restored: Restored, split: str, *, outlets: Sequence[Outlet], poll: Callable[[], None], stop: StopRequest | None
) -> dict[str, Any]:
    """:func:`rank_any` without the copy."""
    system, about = restored.system, {**restored.used, "split": split}
    if isinstance(system, RanksTriples):
        evaluation = restored.job.settings.evaluation
        rankings = _by_baselines(restored, split, "both", outlets=outlets, poll=poll, stop=stop)
        report = cast(RanksTriples, system).ranking_report(
            restored.model, split, tuple(evaluation.top_k), poll, rankings
        )
        restored.run.write_json(FILE, {"kind": "triples", **about, **report})
        mrr = {name: metrics["mrr"] for name, metrics in report["micro"].items()}
        shown = {name: report[name] for name in ("macro", "micro", "against", "strata")}
        return {**about, "mrr": {"model": mrr.pop("model"), "frequency": mrr.pop("degree"), **mrr}, **shown}
    if isinstance(system, Recommends):
        # Prefixes of its metrics name the compared models and the protocols.
        found = system.evaluate(restored.model, split, final=True, poll=poll)
        rival = rival_mf(restored, outlets=outlets)
        found |= {f"{MF}_{name}": value for name, value in mf_figures(rival, split).items()}
        figures = grouped(found)
        about["advice"] = simpler(restored, rival, figures if split == "test" else None)
        about["selected_on"] = restored.selected_on
        about["repeat_share"] = found.get("repeat_share", 0.0)
        restored.run.write_json(FILE, {"kind": "items", **about, "figures": figures})
        return {**about, "figures": figures["model"], "beside": figures}
    ranked = rank_run(restored, split, outlets=outlets, poll=poll, stop=stop)
    compared = ranked.comparison.to_dict()
    shown = {name: compared[name] for name in ("macro", "micro", "against", "strata", "ratios", "verdicts")}
    return {**about, "epoch": ranked.epoch, "mrr": ranked.mrr_beside_baselines(), **shown}


def _by_baselines(
    restored: Restored, split: str, sides: str, ranked: Collection[str] = (), **how: Any
) -> dict[str, LinkRanking]:
    """The rankings of the baselines that the settings name, without the run's own system and those that are ``ranked``.

    They are cached beside the run directory. Spectral vectors have the width of the model's."""
    settings = restored.job.settings
    triples = sides == "both" and isinstance(restored.system, RanksTriples)
    baselines = LinkBaselines(
        restored.graph,
        split,
        restored.run.path.parent / "baselines",
        settings.model.embedding_dim if entry(settings.system).vectors else SPECTRAL_WIDTH,
        sides=sides,
        average="micro" if triples else "macro",
        ks=tuple(settings.evaluation.top_k),
        auc_negatives=0 if triples else AUC_NEGATIVES,
        seed=settings.training.seed,
        device=settings.acceleration.device,
        **how,
    )
    others = [name for name in settings.evaluation.baselines if name not in (restored.system.name, *ranked)]
    return baselines.rankings(others)


def simpler(restored: Restored, rival: Mapping[str, Any], test: Mapping[str, Mapping[str, float]] | None = None) -> str:
    """Advice to use a simpler model if one is better; "" if none is.

    Validation decides. If the data have no validation split, ``test`` does, and the advice says so. There is no advice
    for a run with a validation split whose epoch was chosen on the test split. ``rival``: the result of the
    training of ``mf``, or {}. ``test``: the metrics on the test split by scorer.
    """
    metric = str(restored.job.settings.evaluation.selection_metric)
    if not (restored.run.path / "report.json").is_file():
        return ""
    metrics = restored.run.read_json("report.json")["metrics"]
    valid = {name.removeprefix("valid_"): metrics[name] for name in metrics if name.startswith("valid_")}
    if valid and restored.selected_on != "valid":
        return ""
    figures = grouped(valid) if valid else test or {}
    measured = {who: own[metric] for who, own in figures.items() if metric in own and who in ("model", *SIMPLER)}
    if "model" not in measured:
        return ""
    mine = measured.pop("model")
    if valid and rival.get("best_metric") is not None:
        measured[MF] = float(rival["best_metric"])
    best = max(measured, key=lambda who: measured[who], default="")
    if not best or measured[best] <= mine:
        return ""
    split, take = "validation", "Take"
    if not valid:
        split = "test"
        take = (
            "The data have no validation split, so this is a comparison on test items alone; hold validation items out "
            "(graph.split) to confirm it. Until then take"
        )
    where = f", whose run is {rival['run_dir']}" if best == MF else ""
    return (
        f"{restored.system.name} does not pay on these data: by {metric} on {split} it has {mine:.4f}, {SIMPLER[best]} "
        f"{measured[best]:.4f}. {take} the system {best} (graphmill train {best}){where}"
    )


def rank_run(
    restored: Restored,
    split: str = "test",
    *,
    outlets: Sequence[Outlet] = (),
    poll: Callable[[], None] = lambda: None,
    stop: StopRequest | None = None,
) -> RankedRun:
    """Rank a run's held-out links. Writes ``ranking.json`` into the run directory.

    It compares the model with degree, random, and the baselines of ``evaluation.baselines``: those that are parts of the
    model as they are, others from a cache in a folder beside the run directories.
    """
    settings, system = restored.job.settings, restored.system
    own = isinstance(system, AsksLinks)
    queries = system.ranking_queries(split) if isinstance(system, AsksLinks) else link_queries(restored.graph, split)
    sides = "both" if own and len(queries.relations) > len(restored.graph.relations) else "tails"
    ks = tuple(settings.evaluation.top_k)
    seed = settings.training.seed

    def ranked_by(scorer: Scorer) -> LinkRanking:
        poll()
        return rank_links(scorer, queries, ks=ks, seed=seed)

    rankings = {"model": ranked_by(system.scorer(restored.model)), "degree": ranked_by(DegreeScorer(queries))}
    parts = system.baselines(restored.model)
    others = {name: ranked_by(parts[name]) for name in settings.evaluation.baselines if name in parts}
    others |= _by_baselines(restored, split, sides, parts, outlets=outlets, poll=poll, stop=stop)
    rankings |= others
    rankings["random"] = ranked_by(RandomScorer(queries, seed))
    comparison = compare_to_baselines(
        rankings["model"],
        rankings["degree"],
        rankings["random"],
        others=others,
        seed=seed,
    )
    ranked = RankedRun(rankings, comparison, restored.epoch)
    restored.run.write_json(FILE, {**ranked.to_dict(), **restored.used})
    return ranked
