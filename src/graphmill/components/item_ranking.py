"""Shows a ranking of items for users: the model beside simple predictors, by each protocol."""

from collections.abc import Mapping
from typing import Any

import dagster as dg

from graphmill.components.link_ranking import ratio_result
from graphmill.components.plan import Page
from graphmill.components.worker_asset import Step
from graphmill.evaluation.markdown import table as markdown
from graphmill.evaluation.pictures.embedding import grouped_bars
from graphmill.evaluation.ranking.comparison import SIMPLER
from graphmill.orchestration.checks import Check
from graphmill.orchestration.metadata import Picture, markdown_table, scalars
from graphmill.reports.ranking_tables import ranking_tables
from graphmill.reports.verdict import run_verdict
from graphmill.training.settings import CHOSEN_ON_TEST

BEATS = Check(
    "beats_baselines",
    "The model ranks the held-out items better than popularity and the other simple predictors. If not: use the best "
    "of them.",
)
CHECKS = (BEATS,)
DESCRIPTION = (
    "How well the model predicts what users take: it ranks their held-out items among all others, and so do simpler "
    "predictors. If one of them is better, the summary says which to use."
)
PROTOCOLS = {
    "untied": "full ranking, without targets in the same second as the view before",
    "repeated": "full ranking, only targets that their user had taken before, among all items",
    "new": "full ranking, only targets new to their user, among the items new to the user",
}
"""Prefixes for the model under another protocol. Every other prefix is a simpler model."""
ABOUT = {"recent": "popularity of late", **SIMPLER}

PLOTTED = ("over_best_baseline", "recall@20", "ndcg@20", "ndcg@10", "hr@10", "mrr", "repeat_share")
"""Numbers to plot over several retrainings, in addition to the metric that chose the epoch."""
MOST_PLOTTED = 10
MOST_METRICS = 6
"""Number of metrics in a table, which then fits a window of 1,440 pixels; `ranking.json` has the others."""


def page(step: Step, report: Mapping[str, Any]) -> Page:
    """The metadata and the check results, from the worker's ``ranking.json``."""
    plan, figures_of = step.plan, report["figures"]
    model = figures_of["model"]
    protocols = {name: figures_of[name] for name in figures_of if name in PROTOCOLS}
    # "new_markov" is a simpler model under one of the protocols.
    parted = {name: name.partition("_")[::2] for name in figures_of if name not in PROTOCOLS}
    apart = {name: who for name, who in parted.items() if who[0] in PROTOCOLS}
    baselines = {name: figures_of[name] for name in parted if name not in apart and name != "model"}
    judged = plan.selection_metric if plan.selection_metric in model else next(iter(model))
    on_test = report.get("selected_on") == "test"
    best = max(baselines, key=lambda name: baselines[name].get(judged, 0.0), default="")
    rival = baselines[best].get(judged, 0.0) if best else 0.0
    ratio = model[judged] / rival if rival else float("inf")
    figures = scalars(
        {
            **model,
            **({"over_best_baseline": ratio} if best else {}),
            # Plot one figure per protocol; the tables have the rest.
            **{f"{name}_{judged}": values[judged] for name, values in protocols.items() if judged in values},
            "repeat_share": report.get("repeat_share", 0.0),
        }
    )
    plotted = list(dict.fromkeys(name for name in (judged, *PLOTTED, *figures) if name in figures))[:MOST_PLOTTED]
    everyone = {plan.name: model, **baselines}
    cut = [name for name in model if name.endswith("@10")] or list(model)
    bars = grouped_bars(
        list(everyone),
        {metric: [values.get(metric, 0.0) for values in everyone.values()] for metric in cut[:3]},
        axis="full ranking, test",
        title=f"{judged}: {plan.name} {model[judged]:.3g}"
        + (", whose epoch was chosen on test" if on_test else "")
        + (f", best baseline {best} {rival:.3g}" if best else ""),
    )
    columns = list(dict.fromkeys([judged, *plotted, *model]))[:MOST_METRICS]

    def row(first: str, name: str, values: Mapping[str, float]) -> dict[str, Any]:
        return {first: name, **{metric: values.get(metric) for metric in columns if metric in model}}

    table = [row("full ranking", ABOUT.get(name, name), values) for name, values in everyone.items()]
    under = [row("protocol", "full ranking (primary)", model)]
    for name, values in protocols.items():
        under.append(row("protocol", PROTOCOLS[name], values))
        under += [
            row("protocol", f"the same: {ABOUT.get(who, who)}", figures_of[rival])
            for rival, (protocol, who) in apart.items()
            if protocol == name
        ]
    rest = {
        **({"optimistic": CHOSEN_ON_TEST} if on_test else {}),
        "beside_the_baselines": dg.MetadataValue.md(markdown_table(table)),
        "protocols": dg.MetadataValue.md(markdown_table(under)),
        **{each.name: dg.MetadataValue.md(markdown(each.head, each.rows)) for each in ranking_tables(report)},
    }
    chosen = f" {CHOSEN_ON_TEST[0].upper()}{CHOSEN_ON_TEST[1:]}." if on_test else ""
    metadata = step.page(
        f"{run_verdict(step.path(step.run_dir)).text}{chosen}",
        rest,
        plotted=plotted,
        others=figures,
        pictures={"bars": Picture(bars, f"{step.run_dir}/ranking.png", "the model beside simple predictors")},
    )
    return metadata, [_check_result(step, judged, ratio, best, report)]


def _check_result(step: Step, judged: str, ratio: float, best: str, report: Mapping[str, Any]) -> dg.AssetCheckResult:
    bound = step.plan.checks.baseline_ratio_min
    if not best:
        return step.check(BEATS, True, "no baseline was measured (evaluation.baselines)", "warn")
    text = f"{judged} is {ratio:.3g} times that of {ABOUT.get(best, best)}, bound {bound:g}"
    text += f"; {CHOSEN_ON_TEST}" if report.get("selected_on") == "test" else ""
    return ratio_result(step, BEATS, ratio >= bound, text, ratio=ratio, bound=bound, of="over_best_baseline")
