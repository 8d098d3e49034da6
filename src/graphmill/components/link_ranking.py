"""Shows a ranking of links by relation, beside degree, random, and the model without message passing."""

import math
from collections.abc import Mapping
from typing import Any

import dagster as dg

from graphmill.components.against_baselines import (
    BEATS_BASELINES,
    RATIO,
    against_page,
    baselines_result,
    interval,
    strata_tables,
    without_tie_bounds,
)
from graphmill.components.plan import ModelPlan, Shown
from graphmill.evaluation.pictures.embedding import ranking_bars
from graphmill.evaluation.ranking.comparison import RATIO_CHECKS, ComparedRelation, RatioCheck
from graphmill.orchestration.checks import Check, PreviousRun
from graphmill.orchestration.metadata import picture, records, scalars

BASELINES = {
    "degree": "degree_only",
    "knn": "knn",
    "spectral": "spectral",
    "complex": "complex",
    "random": "random",
    "no_message": "without_messages",
}
"""Scorers besides the model: their names in the report → their labels."""


RATIOS = tuple(each for each in RATIO_CHECKS if each.check)
"""Ratios with a check of the asset; the ratio to the best baseline has its own check."""


PLOTTED = ("mrr", "hits@10", "micro_mrr", RATIO, "mrr_over_degree", "mrr_over_no_message")
"""Numbers to plot over several retrainings."""
CHECKS = (BEATS_BASELINES, *(Check(each.check, each.text) for each in RATIOS))
DESCRIPTION = (
    "How well the model finds links that it was not trained on, compared with simpler predictors. If one of them is "
    "better, use it, or tune the model (docs/how-to/search_settings.md)."
)


def shown(plan: ModelPlan, run_dir: str, report: Mapping[str, Any], previous: PreviousRun) -> Shown:
    """The metadata and the check results, from the worker's ``ranking.json``."""
    comparison = report["comparison"]
    macro, ratios = comparison["macro"], comparison["ratios"]
    micro, against = comparison["micro"]["model"], comparison["against"]
    figures = scalars({**without_tie_bounds(macro["model"]), "micro_mrr": micro["mrr"], **ratios, **interval(against)})
    rows = tuple(
        ComparedRelation(**{**row, "mrr": _numbers(row["mrr"]), "auc_degree": _numbers(row["auc_degree"])})
        for row in comparison["relations"]
    )
    labels = {name: label for name, label in BASELINES.items() if name in macro}
    baselines = {label: macro[name] | {"micro_mrr": comparison["micro"][name]["mrr"]} for name, label in labels.items()}
    metadata = {
        **against_page(against, figures, previous, run_dir, plotted=PLOTTED, baselines=baselines),
        "queries": report["rankings"]["model"]["queries"],
        "epoch": report["epoch"],
        "by_relation": records([_relation_row(relation) for relation in comparison["relations"]]),
        **strata_tables(comparison["strata"], {"model": "model", **labels}),
        "report": dg.MetadataValue.path(f"{run_dir}/ranking.json"),
        "mrr_by_relation": picture(ranking_bars(rows), plan.root, f"{run_dir}/ranking.png", "MRR by relation"),
    }
    checks = [
        baselines_result(plan, against, previous),
        *(_check_result(plan, each, comparison, previous) for each in RATIOS),
    ]
    return metadata, checks


def _numbers(values: Mapping[str, float | None]) -> dict[str, float]:
    return {name: math.nan if value is None else value for name, value in values.items()}


def _relation_row(relation: Mapping[str, Any]) -> dict[str, Any]:
    mrr = relation["mrr"]
    beside = {f"mrr_{label}": mrr[name] for name, label in BASELINES.items() if name in mrr}
    return {"relation": relation["name"], "queries": relation["queries"], "mrr": mrr["model"], **beside}


def _check_result(
    plan: ModelPlan, each: RatioCheck, comparison: Mapping[str, Any], previous: PreviousRun
) -> dg.AssetCheckResult:
    check, key, value = Check(each.check, each.text), plan.key("ranking"), comparison["ratios"].get(each.name)
    if value is None:
        return check.result(key, True, "this baseline does not apply to the model")
    bound = float(getattr(plan.checks, each.threshold.name))
    passed = value > bound if each.above else value >= bound
    remedy = next((v["remedy"] for v in comparison["verdicts"] if v["name"] == each.name and v["remedy"]), "")
    return check.result(
        key,
        passed,
        f"{value:.3g}, bound {bound:g}" + ("" if passed or not remedy else f". {remedy}"),
        severity=plan.checks.severity,
        metadata=scalars({"ratio": value, "bound": bound, "previous": previous.figure(each.name)}),
    )
