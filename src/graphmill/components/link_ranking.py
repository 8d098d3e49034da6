"""How a ranking of links by relation is shown: beside degree-only, random, and the model without message passing."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import dagster as dg

from graphmill.components.against_baselines import (
    BEATS_BASELINES,
    RATIO,
    baselines_result,
    interval,
    mrr_table,
    strata_tables,
)
from graphmill.components.plan import ModelPlan
from graphmill.evaluation.pictures.embedding import ranking_bars
from graphmill.evaluation.ranking.comparison import ComparedRelation, RankingThresholds
from graphmill.orchestration.checks import Check, PreviousRun
from graphmill.orchestration.metadata import FULL_IMAGE_BYTES, picture, records, scalars
from graphmill.orchestration.page import asset_page

BASELINES = {
    "degree": "degree_only",
    "knn": "knn",
    "spectral": "spectral",
    "complex": "complex",
    "random": "random",
    "no_message": "without_messages",
}
"""Scorers beside the model: their names in the report, and as shown."""

Reference = dict[str, Any]


@dataclass(frozen=True)
class RatioCheck:
    """One check of the UI: which ratio it is about, and the setting that bounds it from below."""

    check: Check
    ratio: str
    bound: str


RATIO_CHECKS = (
    RatioCheck(
        Check(
            "beats_degree_only",
            "Links rank better than by the popularity of the target alone. If not: the model has learnt little but degrees.",
        ),
        "mrr_over_degree",
        "degree_ratio_min",
    ),
    RatioCheck(
        Check(
            "most_relations_beat_degree",
            "In most relations the model beats popularity. If not: `by_relation` shows in which it does not.",
        ),
        "share_above_degree",
        "degree_share_min",
    ),
    RatioCheck(
        Check(
            "beats_random",
            "Links rank far better than by chance. If not: ids and vectors may not belong together, or it was not trained.",
        ),
        "mrr_over_random",
        "random_ratio_min",
    ),
    RatioCheck(
        Check(
            "messages_help",
            "Links rank better than by the same model without message passing. If not: fewer layers do as well.",
        ),
        "mrr_over_no_message",
        "message_ratio_min",
    ),
)
# The names must exist: a bound that is renamed should fail at import, not in a run.
assert all(each.bound in RankingThresholds.model_fields for each in RATIO_CHECKS)


PLOTTED = (
    "mrr",
    "hits@10",
    "micro_mrr",
    RATIO,
    "mrr_over_degree",
    "mrr_over_no_message",
)
"""What a person follows over retrainings."""
CHECKS = (BEATS_BASELINES, *(each.check for each in RATIO_CHECKS))
DESCRIPTION = (
    "How well the model finds links that training has not seen, beside simpler predictors. Where one of them is "
    "better, take it, or tune (docs/how-to/search_settings.md)."
)


def shown(
    plan: ModelPlan, run_dir: str, report: Mapping[str, Any], previous: PreviousRun
) -> dg.MaterializeResult[Reference]:
    """The materialization from the worker's ``ranking.json``."""
    key, comparison = plan.key("ranking"), report["comparison"]
    macro, ratios = comparison["macro"], comparison["ratios"]
    micro, against = comparison["micro"]["model"], comparison["against"]
    figures = scalars({**_plain_metrics(macro["model"]), "micro_mrr": micro["mrr"], **ratios, **interval(against)})
    labels = {name: label for name, label in BASELINES.items() if name in macro}
    baselines = {label: macro[name] | {"micro_mrr": comparison["micro"][name]["mrr"]} for name, label in labels.items()}
    return dg.MaterializeResult(
        asset_key=key,
        value={"run_dir": run_dir, "report": f"{run_dir}/ranking.json"},
        metadata={
            **asset_page(
                against["sentence"],
                plotted={name: figures[name] for name in PLOTTED if name in figures},
                others={name: value for name, value in figures.items() if name not in PLOTTED},
                previous=previous,
                baselines=baselines,
                pictures={"MRR by relation": f"{run_dir}/ranking.png"},
            ),
            "mrr_by_scorer": mrr_table(against),
            "queries": report["rankings"]["model"]["queries"],
            "epoch": report["epoch"],
            "by_relation": records([_relation_row(relation) for relation in comparison["relations"]]),
            **strata_tables(comparison["strata"], {"model": "model", **labels}),
            "report": dg.MetadataValue.path(f"{run_dir}/ranking.json"),
            "mrr_by_relation": picture(_bars(comparison), plan.root, f"{run_dir}/ranking.png", "MRR by relation"),
        },
        check_results=[
            baselines_result(plan, against, previous),
            *(_check_result(plan, each, comparison, previous) for each in RATIO_CHECKS),
        ],
    )


def _bars(comparison: Mapping[str, Any]) -> bytes:
    rows = tuple(
        ComparedRelation(**{**row, "mrr": _numbers(row["mrr"]), "auc_degree": _numbers(row["auc_degree"])})
        for row in comparison["relations"]
    )
    return ranking_bars(rows, max_bytes=FULL_IMAGE_BYTES)


def _numbers(values: Mapping[str, float | None]) -> dict[str, float]:
    return {name: math.nan if value is None else value for name, value in values.items()}


def _plain_metrics(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """Without the bounds on ties, which the report has: the UI plots every number."""
    return {name: value for name, value in metrics.items() if not name.startswith(("optimistic_", "pessimistic_"))}


def _relation_row(relation: Mapping[str, Any]) -> dict[str, Any]:
    mrr = relation["mrr"]
    beside = {f"mrr_{label}": mrr[name] for name, label in BASELINES.items() if name in mrr}
    return {"relation": relation["name"], "queries": relation["queries"], "mrr": mrr["model"], **beside}


def _check_result(
    plan: ModelPlan, each: RatioCheck, comparison: Mapping[str, Any], previous: PreviousRun
) -> dg.AssetCheckResult:
    key, value = plan.key("ranking"), comparison["ratios"].get(each.ratio)
    if value is None:
        return each.check.result(key, True, "this baseline does not apply to the model")
    bound = float(getattr(plan.checks, each.bound))
    # The baseline without messages must be beaten; a ratio of 1 there means that the layers add nothing.
    passed = value > bound if each.ratio == "mrr_over_no_message" else value >= bound
    remedy = next((v["remedy"] for v in comparison["verdicts"] if v["name"] == each.ratio and v["remedy"]), "")
    return each.check.result(
        key,
        passed,
        f"{value:.3g}, bound {bound:g}" + ("" if passed or not remedy else f". {remedy}"),
        severity=plan.checks.severity,
        metadata=scalars({"ratio": value, "bound": bound, "previous": previous.figure(each.ratio)}),
    )
