"""Shows a ranking of triples: both sides, per relation and per degree, beside a ranking by frequency."""

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
from graphmill.evaluation.pictures.comparisons import grouped_bars
from graphmill.orchestration.checks import Check, PreviousRun
from graphmill.orchestration.metadata import picture, records, scalars

BEATS = Check(
    "beats_frequency",
    "The model ranks triples better than the frequency of the candidate with the relation in training. If not: train "
    "longer, or tune.",
)
MOSTLY = Check(
    "most_relations_beat_frequency",
    "In most relations the model beats a ranking by frequency. If not: `by_relation` shows the others.",
)
CHECKS = (BEATS_BASELINES, BEATS, MOSTLY)
DESCRIPTION = (
    "How well the model completes triples that it was not trained on, at both ends, compared with simpler "
    "predictors. If one of them is better, use it, or tune the model (docs/how-to/search_settings.md)."
)
OVER_FREQUENCY = "mrr_over_frequency"
PLOTTED = ("mrr", "hits@10", "macro_mrr", RATIO, OVER_FREQUENCY)
"""Numbers to plot over several retrainings."""
SHOWN_BARS = 30


def shown(plan: ModelPlan, run_dir: str, report: Mapping[str, Any], previous: PreviousRun) -> Shown:
    """The metadata and the check results, from the worker's ``ranking.json``."""
    key, both, baseline = plan.key("ranking"), report["both"], report["baseline"]
    against = report["against"]
    ratio = both["mrr"] / baseline["mrr"] if baseline["mrr"] else float("inf")
    rows = sorted(report["relations"], key=lambda row: (-row["queries"], row["name"]))
    above = sum(row["mrr"] > row["baseline_mrr"] for row in rows)
    figures = scalars(
        {
            **without_tie_bounds(both),
            **{f"{side}_mrr": report[side]["mrr"] for side in ("tail", "head")},
            OVER_FREQUENCY: ratio,
            "share_above_frequency": above / max(len(rows), 1),
            "macro_mrr": report["macro"]["model"]["mrr"],
            **interval(against),
        }
    )
    bars = grouped_bars(
        [f"{row['name']} ({row['queries']})" for row in rows[:SHOWN_BARS]],
        {
            label: [row[name] for row in rows[:SHOWN_BARS]]
            for label, name in (("tails", "tail_mrr"), ("heads", "head_mrr"), ("by frequency", "baseline_mrr"))
        },
        axis="filtered MRR (queries in brackets)",
        title=f"The model ranks above frequency in {above} of {len(rows)} relations",
    )
    others = {name: name for name in report["micro"] if name not in ("model", "degree")}
    by_scorer = {
        name: report["micro"][name] | {"macro_mrr": report["macro"][name]["mrr"]} for name in ("degree", *others)
    }
    beside = {"tails": report["tail"], "heads": report["head"], "by_frequency": by_scorer.pop("degree"), **by_scorer}
    metadata = {
        **against_page(against, figures, previous, run_dir, plotted=PLOTTED, baselines=beside),
        "queries": report["queries"],
        "epoch": report["epoch"],
        "by_relation": records([_relation_row(row) for row in rows]),
        **strata_tables(report["strata"], {"model": "model", "degree": "by frequency", **others}),
        "report": dg.MetadataValue.path(f"{run_dir}/ranking.json"),
        "mrr_by_relation": picture(bars, plan.root, f"{run_dir}/ranking.png", "MRR by relation"),
    }
    checks = [
        baselines_result(plan, against, previous),
        BEATS.result(
            key,
            ratio >= plan.checks.degree_ratio_min,
            f"{ratio:.3g} times its MRR; the bound is {plan.checks.degree_ratio_min:g}",
            severity=plan.checks.severity,
            metadata=scalars(
                {"ratio": ratio, "bound": plan.checks.degree_ratio_min, "previous": previous.figure(OVER_FREQUENCY)}
            ),
        ),
        MOSTLY.result(
            key,
            above >= plan.checks.degree_share_min * len(rows),
            f"in {above} of {len(rows)} relations, bound {plan.checks.degree_share_min:.0%}",
            severity=plan.checks.severity,
        ),
    ]
    return metadata, checks


def _relation_row(row: Mapping[str, Any]) -> dict[str, Any]:
    hits = [name for name in row if name.startswith("hits@")]
    names = ("queries", "mrr", "tail_mrr", "head_mrr", *hits, "mr")
    return {"relation": row["name"], **{n: row[n] for n in names if n in row}, "mrr_by_frequency": row["baseline_mrr"]}
