"""Shows a ranking of links beside its baselines: the summary sentence, the check, and tables by subset of
queries."""

from collections.abc import Mapping, Sequence
from typing import Any

import dagster as dg

from graphmill.components.plan import ModelPlan
from graphmill.components.worker_asset import Step
from graphmill.evaluation.markdown import table
from graphmill.evaluation.ranking.against_baselines import title
from graphmill.orchestration.checks import Check, SeverityName
from graphmill.orchestration.metadata import Picture, markdown_table, records, scalars
from graphmill.reports.ranking_tables import ranking_tables
from graphmill.reports.verdict import run_verdict

BEATS_BASELINES = Check(
    "beats_baselines",
    "The model ranks held-out links or items better than every baseline (degree, nearest neighbours, ComplEx, …). If "
    "not: use the baseline, or search better settings (`graphmill search`). The bound is "
    "checks.baseline_ratio_min.",
)
RATIO = "mrr_over_best_baseline"


def baselines_severity(plan: ModelPlan) -> SeverityName:
    """The severity of ``beats_baselines``: error if either setting is error."""
    return "error" if "error" in (plan.checks.severity, plan.checks.baseline_severity) else "warn"


def ratio_result(
    step: Step, check: Check, passed: bool, summary: str, *, ratio: Any, bound: float, of: str, **more: Any
) -> dg.AssetCheckResult:
    """The result of a check of a ratio to baselines. ``of``: the figure whose previous value is shown."""
    metadata = scalars({"ratio": ratio, "bound": bound, "ratio of the run before": step.previous.figure(of), **more})
    severity = baselines_severity(step.plan) if check.name == BEATS_BASELINES.name else None
    return step.check(check, passed, summary, severity, metadata)


def against_result(step: Step, against: Mapping[str, Any]) -> dg.AssetCheckResult:
    """The check: the ratio to the best baseline is at least ``checks.baseline_ratio_min``."""
    ratio, bound = against["ratios"][against["best"]], step.plan.checks.baseline_ratio_min
    value = ratio["value"]
    return ratio_result(
        step,
        BEATS_BASELINES,
        value is None or value >= bound,  # None: no baseline has an MRR above 0
        against["sentence"] + ("" if bound == 1.0 else f" The bound of the ratio is {bound:g}."),
        ratio=value,
        bound=bound,
        of=RATIO,
        best=title(against["best"]),
        interval=interval_of(ratio),
    )


def against_page(
    step: Step,
    against: Mapping[str, Any],
    figures: Mapping[str, Any],
    bars: bytes,
    rows: Sequence[Mapping[str, Any]],
    report: Mapping[str, Any],
    **layout: Any,
) -> dict[str, Any]:
    """The page of a ranking of links. ``bars``: a PNG of MRR by relation; ``rows``: the table by relation;
    ``report``: the worker's ``ranking.json``; ``layout``: ``plotted`` and ``baselines`` of :func:`asset_page`."""
    ratio = against["ratios"][against["best"]]
    tables = {each.name: dg.MetadataValue.md(table(each.head, each.rows)) for each in ranking_tables(report)}
    plain = {name: value for name, value in figures.items() if not name.startswith(("optimistic_", "pessimistic_"))}
    interval = {RATIO: ratio["value"], f"{RATIO}_low": ratio["low"], f"{RATIO}_high": ratio["high"]}
    return step.page(
        run_verdict(step.path(step.run_dir)).text,
        {"mrr_by_scorer": _mrr_table(against), "by_relation": records(rows), **tables},
        others=scalars(plain | interval),  # the bounds for ties are in the report: the UI would plot each of them
        pictures={"mrr_by_relation": Picture(bars, f"{step.run_dir}/ranking.png", "MRR by relation")},
        **layout,
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
