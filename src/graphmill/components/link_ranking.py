"""How a ranking of links by relation is shown: beside degree-only, random, and the model without message passing."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import dagster as dg

from graphmill.components.plan import ModelPlan
from graphmill.evaluation.pictures.embedding import ranking_bars
from graphmill.evaluation.ranking.comparison import ComparedRelation, RankingComparison, RankingThresholds
from graphmill.orchestration.checks import Check, PreviousRun, compared
from graphmill.orchestration.metadata import FULL_IMAGE_BYTES, markdown_table, picture, records, scalars

BASELINES = {"degree": "degree_only", "random": "random", "no_message": "without_messages"}
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
        Check("beats_degree_only", "Links rank better than by the popularity of the target alone."),
        "mrr_over_degree",
        "degree_ratio_min",
    ),
    RatioCheck(
        Check("most_relations_beat_degree", "In most relations the model beats popularity."),
        "share_above_degree",
        "degree_share_min",
    ),
    RatioCheck(Check("beats_random", "Links rank far better than by chance."), "mrr_over_random", "random_ratio_min"),
    RatioCheck(
        Check("messages_help", "Links rank better than by the same model without message passing."),
        "mrr_over_no_message",
        "message_ratio_min",
    ),
)
# The names must exist: a bound that is renamed should fail at import, not in a run.
assert all(each.bound in RankingThresholds.model_fields for each in RATIO_CHECKS)


CHECKS = tuple(each.check for each in RATIO_CHECKS)
DESCRIPTION = (
    "Filtered MRR, Hits@k and AUC of the held-out links, per relation and over all, beside degree-only, random, "
    "and the same model without message passing (trained once, then reused)."
)


def shown(
    plan: ModelPlan, run_dir: str, report: Mapping[str, Any], previous: PreviousRun
) -> dg.MaterializeResult[Reference]:
    """The materialization from the worker's ``ranking.json``."""
    key, comparison = plan.key("ranking"), report["comparison"]
    macro, ratios = comparison["macro"], comparison["ratios"]
    figures = scalars({**_plain_metrics(macro["model"]), **ratios})
    baselines = {label: macro[name] for name, label in BASELINES.items() if name in macro}
    return dg.MaterializeResult(
        asset_key=key,
        value={"run_dir": run_dir, "report": f"{run_dir}/ranking.json"},
        metadata={
            **figures,
            "queries": report["rankings"]["model"]["queries"],
            "epoch": report["epoch"],
            "figures": compared(figures, previous, baselines),
            "by_relation": records([_relation_row(relation) for relation in comparison["relations"]]),
            "by_degree": dg.MetadataValue.md(markdown_table(_degree_rows(report["rankings"]["model"]))),
            "report": dg.MetadataValue.path(f"{run_dir}/ranking.json"),
            "mrr_by_relation": picture(_bars(comparison), plan.root, f"{run_dir}/ranking.png", "MRR by relation"),
        },
        check_results=[_check_result(plan, each, comparison, previous) for each in RATIO_CHECKS],
    )


def _bars(comparison: Mapping[str, Any]) -> bytes:
    rows = tuple(
        ComparedRelation(**{**row, "mrr": _numbers(row["mrr"]), "auc_degree": _numbers(row["auc_degree"])})
        for row in comparison["relations"]
    )
    plain = RankingComparison(rows, comparison["macro"], comparison["micro"], comparison["ratios"], verdicts=())
    return ranking_bars(plain, max_bytes=FULL_IMAGE_BYTES)


def _numbers(values: Mapping[str, float | None]) -> dict[str, float]:
    return {name: math.nan if value is None else value for name, value in values.items()}


def _plain_metrics(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """Without the bounds on ties, which the report has: the UI plots every number."""
    return {name: value for name, value in metrics.items() if not name.startswith(("optimistic_", "pessimistic_"))}


def _relation_row(relation: Mapping[str, Any]) -> dict[str, Any]:
    mrr = relation["mrr"]
    beside = {f"mrr_{label}": mrr[name] for name, label in BASELINES.items() if name in mrr}
    return {"relation": relation["name"], "queries": relation["queries"], "mrr": mrr["model"], **beside}


def degree_range(each: Mapping[str, Any]) -> str:
    """``"10 to 99"`` or ``"100+"``."""
    return f"{each['low']} to {each['high']}" if each["high"] >= 0 else f"{each['low']}+"


def _degree_rows(ranking: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [
        {
            "training links of the target": degree_range(each),
            "queries": each["queries"],
            **{name: each["metrics"].get(name) for name in ("mrr", "hits@10")},
        }
        for each in ranking["by_degree"]
    ]


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
