"""Shows a ranking of links by relation, beside degree, random and the baselines."""

import math
from collections.abc import Mapping
from typing import Any

import dagster as dg

from graphmill.components.against_baselines import BEATS_BASELINES, RATIO, against_page, against_result, ratio_result
from graphmill.components.plan import Page
from graphmill.components.worker_asset import Step
from graphmill.evaluation.pictures.embedding import ranking_bars
from graphmill.evaluation.ranking.comparison import RATIO_CHECKS, ComparedRelation, RatioCheck
from graphmill.orchestration.checks import Check

BASELINES = {
    "degree": "degree_only",
    "knn": "knn",
    "spectral": "spectral",
    "complex": "complex",
    "random": "random",
}
"""Scorers besides the model: their names in the report → their labels."""
RATIOS = tuple(each for each in RATIO_CHECKS if each.check)
"""Ratios with a check of the asset; the ratio to the best baseline has its own check."""
PLOTTED = ("mrr", "hits@10", "micro_mrr", "macro_mrr", RATIO, "mrr_over_degree")
"""Numbers to plot over several retrainings."""
CHECKS = (BEATS_BASELINES, *(Check(each.check, each.text) for each in RATIOS))
DESCRIPTION = (
    "How well the model finds links that it was not trained on, compared with simpler predictors. If one of them is "
    "better, use it, or search better settings (`graphmill search`)."
)


def page(step: Step, report: Mapping[str, Any]) -> Page:
    """The metadata and the check results, from the worker's ``ranking.json``."""
    comparison = report["comparison"]
    against, average = comparison["against"], comparison["against"]["average"]
    other = "micro" if average == "macro" else "macro"
    figures, others = comparison[average], comparison[other]
    rows = tuple(
        ComparedRelation(**{**row, "mrr": _numbers(row["mrr"]), "auc_degree": _numbers(row["auc_degree"])})
        for row in comparison["relations"]
    )
    labels = {name: label for name, label in BASELINES.items() if name in figures}
    metadata = against_page(
        step,
        against,
        {**figures["model"], f"{other}_mrr": others["model"]["mrr"], **comparison["ratios"]},
        ranking_bars(rows),
        [_relation_row(relation) for relation in comparison["relations"]],
        report,
        plotted=PLOTTED,
        baselines={label: figures[name] | {f"{other}_mrr": others[name]["mrr"]} for name, label in labels.items()},
    )
    checks = [against_result(step, against), *(_check_result(step, each, comparison) for each in RATIOS)]
    return metadata | {"queries": report["rankings"]["model"]["queries"]}, checks


def _numbers(values: Mapping[str, float | None]) -> dict[str, float]:
    return {name: math.nan if value is None else value for name, value in values.items()}


def _relation_row(relation: Mapping[str, Any]) -> dict[str, Any]:
    mrr = relation["mrr"]
    baselines = {f"mrr_{label}": mrr[name] for name, label in BASELINES.items() if name in mrr}
    return {"relation": relation["name"], "queries": relation["queries"], "mrr": mrr["model"], **baselines}


def _check_result(step: Step, each: RatioCheck, comparison: Mapping[str, Any]) -> dg.AssetCheckResult:
    check, value = Check(each.check, each.text), comparison["ratios"].get(each.name)
    if value is None:
        return step.check(check, True, "this baseline does not apply to the model", "warn")
    bound = float(getattr(step.plan.checks, each.threshold.name))
    passed = value >= bound
    remedy = next((v["remedy"] for v in comparison["verdicts"] if v["name"] == each.name and v["remedy"]), "")
    summary = f"{value:.3g}, bound {bound:g}" + ("" if passed or not remedy else f". {remedy}")
    return ratio_result(step, check, passed, summary, ratio=value, bound=bound, of=each.name)
