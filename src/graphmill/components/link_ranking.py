"""Shows a ranking of links by relation, beside degree and the other baselines."""

from collections.abc import Mapping
from typing import Any

import dagster as dg

from graphmill.components.plan import Page
from graphmill.components.worker_asset import Step
from graphmill.evaluation.markdown import table
from graphmill.evaluation.pictures.embedding import ranking_bars
from graphmill.evaluation.ranking.comparison import title
from graphmill.orchestration.checks import Check
from graphmill.orchestration.metadata import Picture, markdown_table, records, scalars
from graphmill.reports.ranking_tables import ranking_tables
from graphmill.reports.verdict import comparison_sentence, run_verdict

BEATS_BASELINES = Check(
    "beats_baselines",
    "The model ranks held-out links or items better than every baseline (degree, nearest neighbours, ComplEx, …). If "
    "not: use the baseline, or search better settings (`graphmill search`). The bound is "
    "checks.baseline_ratio_min.",
)
RATIO = "mrr_over_best_baseline"
PLOTTED = ("mrr", "hits@10", "micro_mrr", "macro_mrr", RATIO)
"""Numbers to plot over several retrainings."""
CHECKS = (BEATS_BASELINES,)
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
    ratio, values = against["ratios"][against["best"]], figures["model"] | {f"{other}_mrr": others["model"]["mrr"]}
    interval = {RATIO: ratio["value"], f"{RATIO}_low": ratio["low"], f"{RATIO}_high": ratio["high"]}
    tables = {each.name: dg.MetadataValue.md(table(each.head, each.rows)) for each in ranking_tables(report)}
    by_relation = records([_relation_row(relation) for relation in comparison["relations"]])
    metadata = step.page(
        run_verdict(step.path(step.run_dir)).text,
        {"mrr_by_scorer": _mrr_table(against), "by_relation": by_relation, **tables},
        others=scalars(values | interval),
        pictures={
            "mrr_by_relation": Picture(
                ranking_bars(comparison["relations"]), f"{step.run_dir}/ranking.png", "MRR by relation"
            )
        },
        plotted=PLOTTED,
        baselines={
            name: values | {f"{other}_mrr": others[name]["mrr"]} for name, values in figures.items() if name != "model"
        },
    )
    return metadata | {"queries": report["rankings"]["model"]["queries"]}, [against_result(step, against)]


def _relation_row(relation: Mapping[str, Any]) -> dict[str, Any]:
    mrr = relation["mrr"]
    baselines = {f"mrr_{name}": value for name, value in mrr.items() if name != "model"}
    return {"relation": relation["name"], "queries": relation["queries"], "mrr": mrr["model"], **baselines}


def ratio_result(
    step: Step, check: Check, passed: bool, summary: str, *, ratio: Any, bound: float, of: str, **more: Any
) -> dg.AssetCheckResult:
    """The result of a check of a ratio to baselines. ``of``: the figure whose previous value is shown."""
    metadata = scalars({"ratio": ratio, "bound": bound, "ratio of the run before": step.previous.figure(of), **more})
    severities = (step.plan.checks.severity, step.plan.checks.baseline_severity)
    return step.check(check, passed, summary, "error" if "error" in severities else "warn", metadata)


def against_result(step: Step, against: Mapping[str, Any]) -> dg.AssetCheckResult:
    """The check: the ratio to the best baseline is at least ``checks.baseline_ratio_min``."""
    ratio, bound = against["ratios"][against["best"]], step.plan.checks.baseline_ratio_min
    value = ratio["value"]
    return ratio_result(
        step,
        BEATS_BASELINES,
        value is None or value >= bound,  # None: no baseline has an MRR above 0
        comparison_sentence(against) + ("" if bound == 1.0 else f" The bound of the ratio is {bound:g}."),
        ratio=value,
        bound=bound,
        of=RATIO,
        best=title(against["best"]),
        interval=interval_of(ratio),
    )


def interval_of(ratio: Mapping[str, Any]) -> str:
    """A ratio's 95 % interval; "" without one."""
    low, high = ratio.get("low"), ratio.get("high")
    return f"{low:.3f} to {high:.3f}" if low is not None and high is not None else ""


def _mrr_table(against: Mapping[str, Any]) -> dg.MetadataValue:
    """One row for the model and each baseline: MRR, and the model's ratio to it with its interval."""
    rows = []
    for name, mrr in against["mrr"].items():
        ratio = against["ratios"].get(name, {})
        rows.append(
            {
                "scorer": name if name == "model" else title(name),
                f"{against['average']} MRR": mrr,
                "model / baseline": ratio.get("value"),
                "95 % interval": interval_of(ratio),
            }
        )
    return dg.MetadataValue.md(markdown_table(rows))
