"""Shows a ranking of links or triples beside its baselines: the summary sentence, the check, and tables by subset of
queries."""

from collections.abc import Mapping
from typing import Any

import dagster as dg

from graphmill.components.plan import ModelPlan
from graphmill.evaluation.ranking.against_baselines import HALF_LINK_TITLES, links_of, title
from graphmill.orchestration.checks import Check, PreviousRun, SeverityName
from graphmill.orchestration.metadata import markdown_table, scalars
from graphmill.orchestration.page import asset_page

BEATS_BASELINES = Check(
    "beats_baselines",
    "The model ranks held-out links or items better than every baseline (degree, nearest neighbours, ComplEx, …). If "
    "not: use the baseline, or tune the model (docs/how-to/search_settings.md). The bound is "
    "checks.baseline_ratio_min.",
)
RATIO = "mrr_over_best_baseline"


def interval(against: Mapping[str, Any]) -> dict[str, Any]:
    """The ratio to the best baseline and its 95 % interval, as figures."""
    ratio = against["ratios"][against["best"]]
    return {RATIO: ratio["value"], f"{RATIO}_low": ratio["low"], f"{RATIO}_high": ratio["high"]}


def baselines_severity(plan: ModelPlan) -> SeverityName:
    """The severity of ``beats_baselines``: error if either setting is error."""
    return "error" if "error" in (plan.checks.severity, plan.checks.baseline_severity) else "warn"


def baselines_result(plan: ModelPlan, against: Mapping[str, Any], previous: PreviousRun) -> dg.AssetCheckResult:
    """The check: the ratio to the best baseline is at least ``checks.baseline_ratio_min``."""
    ratio = against["ratios"][against["best"]]
    bound, value = plan.checks.baseline_ratio_min, ratio["value"]
    return BEATS_BASELINES.result(
        plan.key("ranking"),
        value is None or value >= bound,  # None: no baseline has an MRR above 0
        against["sentence"] + ("" if bound == 1.0 else f" The bound of the ratio is {bound:g}."),
        severity=baselines_severity(plan),
        metadata=scalars(
            {
                "best": against["best"],
                "ratio": value,
                "low": ratio["low"],
                "high": ratio["high"],
                "bound": bound,
                "previous": previous.figure(RATIO),
                "mrr": against["mrr"],
            }
        ),
    )


def without_tie_bounds(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """Metrics without the bounds for ties, because the UI plots every number; the report has these bounds."""
    return {name: value for name, value in metrics.items() if not name.startswith(("optimistic_", "pessimistic_"))}


def against_page(
    against: Mapping[str, Any], figures: Mapping[str, Any], previous: PreviousRun, run_dir: str, **shown: Any
) -> dict[str, Any]:
    """The page of a ranking of links or triples, and its table of MRR by scorer. ``shown``: ``plotted`` and ``baselines``
    of :func:`asset_page`."""
    pictures = {"MRR by relation": f"{run_dir}/ranking.png"}
    page = asset_page(against["sentence"], others=figures, previous=previous, pictures=pictures, **shown)
    return page | {"mrr_by_scorer": mrr_table(against)}


def mrr_table(against: Mapping[str, Any]) -> dg.MetadataValue:
    """One row for the model and each baseline: MRR, and the model's ratio to it with its interval."""
    rows = []
    for name, mrr in against["mrr"].items():
        ratio = against["ratios"].get(name, {})
        low, high = ratio.get("low"), ratio.get("high")
        rows.append(
            {
                "scorer": name if name == "model" else title(name),
                f"{against['average']} MRR": mrr,
                "model / baseline": ratio.get("value"),
                "95 % interval": f"{low:.3f} to {high:.3f}" if low is not None and high is not None else "",
            }
        )
    return dg.MetadataValue.md(markdown_table(rows))


def strata_tables(strata: Mapping[str, Any], labels: Mapping[str, str]) -> dict[str, dg.MetadataValue]:
    """Tables of MRR by subset of queries and by scorer: ``by_degree`` and ``by_half_link``.

    ``labels``: the scorers to show → their labels.
    """

    def row(first: str, text: str, part: Mapping[str, Any]) -> dict[str, Any]:
        shown = {label: part["mrr"].get(name) for name, label in labels.items()}
        return {first: text, "queries": part["queries"], **shown}

    by_degree = [row("training links of the target", links_of(part), part) for part in strata["by_degree"]]
    by_half = [
        row("half of the link that training has", HALF_LINK_TITLES[part["seen"]], part)
        for part in strata["by_half_link"]
    ]
    return {
        "by_degree": dg.MetadataValue.md(markdown_table(by_degree)),
        "by_half_link": dg.MetadataValue.md(markdown_table(by_half)),
    }
