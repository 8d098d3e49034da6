"""Shows a ranking of triples: both sides, per relation and per degree, beside a ranking by frequency."""

from collections.abc import Mapping
from typing import Any

from graphmill.components.against_baselines import BEATS_BASELINES, RATIO, against_page, against_result, ratio_result
from graphmill.components.plan import Page
from graphmill.components.worker_asset import Step
from graphmill.evaluation.pictures.comparisons import grouped_bars
from graphmill.orchestration.checks import Check

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
    "predictors. If one of them is better, use it, or search better settings (`graphmill search`)."
)
OVER_FREQUENCY = "mrr_over_frequency"
PLOTTED = ("mrr", "hits@10", "macro_mrr", RATIO, OVER_FREQUENCY)
"""Numbers to plot over several retrainings."""
SHOWN_BARS = 30


def page(step: Step, report: Mapping[str, Any]) -> Page:
    """The metadata and the check results, from the worker's ``ranking.json``."""
    bounds, both, baseline = step.plan.checks, report["both"], report["baseline"]
    ratio = both["mrr"] / baseline["mrr"] if baseline["mrr"] else float("inf")
    rows = sorted(report["relations"], key=lambda row: (-row["queries"], row["name"]))
    above = sum(row["mrr"] > row["baseline_mrr"] for row in rows)
    figures = {
        **both,
        **{f"{side}_mrr": report[side]["mrr"] for side in ("tail", "head")},
        OVER_FREQUENCY: ratio,
        "share_above_frequency": above / max(len(rows), 1),
        "macro_mrr": report["macro"]["model"]["mrr"],
    }
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
    baselines = {"tails": report["tail"], "heads": report["head"], "by_frequency": by_scorer.pop("degree"), **by_scorer}
    metadata = against_page(
        step,
        report["against"],
        figures,
        bars,
        [_relation_row(row) for row in rows],
        report,
        plotted=PLOTTED,
        baselines=baselines,
    )
    mostly = f"in {above} of {len(rows)} relations, bound {bounds.degree_share_min:.0%}"
    return metadata | {"queries": report["queries"]}, [
        against_result(step, report["against"]),
        ratio_result(
            step,
            BEATS,
            ratio >= bounds.degree_ratio_min,
            f"{ratio:.3g} times its MRR; the bound is {bounds.degree_ratio_min:g}",
            ratio=ratio,
            bound=bounds.degree_ratio_min,
            of=OVER_FREQUENCY,
        ),
        step.check(MOSTLY, above >= bounds.degree_share_min * len(rows), mostly),
    ]


def _relation_row(row: Mapping[str, Any]) -> dict[str, Any]:
    hits = [name for name in row if name.startswith("hits@")]
    names = ("queries", "mrr", "tail_mrr", "head_mrr", *hits, "mr")
    return {"relation": row["name"], **{n: row[n] for n in names if n in row}, "mrr_by_frequency": row["baseline_mrr"]}
