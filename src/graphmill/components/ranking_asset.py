"""The asset ``<dataset>/<model>_ranking``: the ranking of held-out data by the model and its baselines.

The system decides what is ranked: links by relation, or items for users. The worker ranks and
writes ``ranking.json``.
"""

from collections.abc import Mapping
from typing import Any

import dagster as dg

from graphmill.components.model_asset import describe
from graphmill.components.plan import ModelPlan, Reference
from graphmill.components.worker_asset import Step, WorkerAsset
from graphmill.errors import SettingsError
from graphmill.evaluation import markdown
from graphmill.evaluation.pictures.embedding import grouped_bars, ranking_bars
from graphmill.evaluation.ranking.comparison import SIMPLER, title
from graphmill.orchestration.checks import Check
from graphmill.orchestration.metadata import Picture, markdown_table, records, scalars
from graphmill.reports.ranking_tables import ranking_tables
from graphmill.reports.verdict import comparison_sentence, run_verdict
from graphmill.systems.registry import entry
from graphmill.training.settings import CHOSEN_ON_TEST

Page = tuple[dict[str, Any], dg.AssetCheckResult]
"""The metadata of a ranking, and the result of its check."""
BEATS_BASELINES = Check(
    "beats_baselines",
    "The model ranks held-out links or items better than every baseline (degree, nearest neighbours, ComplEx, …). If "
    "not: use the baseline, or search better settings (`graphmill search`). The bound is "
    "checks.baseline_ratio_min.",
)
CHECKS = (BEATS_BASELINES,)
RATIO = "mrr_over_best_baseline"
LINKS_PLOTTED = ("mrr", "hits@10", "micro_mrr", "macro_mrr", RATIO)
"""Numbers to plot over several retrainings."""
LINKS = (
    "How well the model finds links that it was not trained on, compared with simpler predictors. If one of them is "
    "better, use it, or search better settings (`graphmill search`)."
)
ITEMS = (
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

ITEMS_PLOTTED = ("over_best_baseline", "recall@20", "ndcg@20", "ndcg@10", "hr@10", "mrr", "repeat_share")
"""Numbers to plot over several retrainings, in addition to the metric that chose the epoch."""
MOST_PLOTTED = 10
MOST_METRICS = 6
"""Number of metrics in a table, which then fits a window of 1,440 pixels; `ranking.json` has the others."""


def ranking_asset(plan: ModelPlan) -> WorkerAsset:
    """The ranking asset for the system's kind of ranking."""
    items = plan.abilities.ranks == "items"
    if items and plan.ranking.truth:
        raise SettingsError(f"ranking.truth is for predicted links, and {plan.system} recommends items: remove it")
    return WorkerAsset(
        part="ranking",
        stage="validation",
        kinds={"pytorch", "markdown"},
        description=ITEMS if items else LINKS,
        checks=CHECKS,
        code_version="3",
        settings=plan.ranking,
        job=lambda step: {
            "mode": "rank",
            "run_dir": step.run_dir,
            "rank": step.settings.model_dump(),
        },
        page=_page,
    )


def _page(step: Step) -> dg.MaterializeResult[Reference]:
    file = f"{step.run_dir}/ranking.json"
    report = step.read(file)
    pages = describe(step)  # the summary links the report that this writes
    show = _item_page if entry(step.plan.system).ranks == "items" else _link_page
    metadata, result = show(step, report)
    notes = {"notes": "; ".join(report["notes"]), "best_epoch": report["best_epoch"]} if "notes" in report else {}
    rest = {"epoch": report["epoch"], "report": dg.MetadataValue.path(file), **notes}
    return step.result(
        {"run_dir": step.run_dir, "report": file},
        {**metadata, **rest, **pages},
        [result],
    )


def _link_page(step: Step, report: Mapping[str, Any]) -> Page:
    """The metadata and the result of the check, from the worker's ``ranking.json``."""
    comparison = report["comparison"]
    against, average = comparison["against"], comparison["against"]["average"]
    other = "micro" if average == "macro" else "macro"
    figures, others = comparison[average], comparison[other]
    ratio, values = against["ratios"][against["best"]], figures["model"] | {f"{other}_mrr": others["model"]["mrr"]}
    interval = {RATIO: ratio["value"], f"{RATIO}_low": ratio["low"], f"{RATIO}_high": ratio["high"]}
    tables = {each.name: dg.MetadataValue.md(markdown.table(each.head, each.rows)) for each in ranking_tables(report)}
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
        plotted=LINKS_PLOTTED,
        baselines={
            name: values | {f"{other}_mrr": others[name]["mrr"]} for name, values in figures.items() if name != "model"
        },
    )
    value, bound = ratio["value"], step.plan.checks.baseline_ratio_min
    result = _ratio_result(
        step,
        value is None or value >= bound,  # None: no baseline has an MRR above 0
        comparison_sentence(against) + ("" if bound == 1.0 else f" The bound of the ratio is {bound:g}."),
        ratio=value,
        bound=bound,
        of=RATIO,
        best=title(against["best"]),
        interval=_interval(ratio),
    )
    return metadata | {"queries": report["rankings"]["model"]["queries"]}, result


def _relation_row(relation: Mapping[str, Any]) -> dict[str, Any]:
    mrr = relation["mrr"]
    baselines = {f"mrr_{name}": value for name, value in mrr.items() if name != "model"}
    return {"relation": relation["name"], "queries": relation["queries"], "mrr": mrr["model"], **baselines}


def _ratio_result(
    step: Step, passed: bool, summary: str, *, ratio: Any, bound: float, of: str, **more: Any
) -> dg.AssetCheckResult:
    """The result of a check of a ratio to baselines. ``of``: the figure whose previous value is shown."""
    metadata = scalars({"ratio": ratio, "bound": bound, "ratio of the run before": step.previous.figure(of), **more})
    severities = (step.plan.checks.severity, step.plan.checks.baseline_severity)
    return step.check(BEATS_BASELINES, passed, summary, "error" if "error" in severities else "warn", metadata)


def _interval(ratio: Mapping[str, Any]) -> str:
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
                "95 % interval": _interval(ratio),
            }
        )
    return dg.MetadataValue.md(markdown_table(rows))


def _item_page(step: Step, report: Mapping[str, Any]) -> Page:
    """The metadata and the result of the check, from the worker's ``ranking.json``."""
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
    plotted = list(dict.fromkeys(name for name in (judged, *ITEMS_PLOTTED, *figures) if name in figures))[:MOST_PLOTTED]
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
        **{each.name: dg.MetadataValue.md(markdown.table(each.head, each.rows)) for each in ranking_tables(report)},
    }
    chosen = f" {CHOSEN_ON_TEST[0].upper()}{CHOSEN_ON_TEST[1:]}." if on_test else ""
    metadata = step.page(
        f"{run_verdict(step.path(step.run_dir)).text}{chosen}",
        rest,
        plotted=plotted,
        others=figures,
        pictures={"bars": Picture(bars, f"{step.run_dir}/ranking.png", "the model beside simple predictors")},
    )
    return metadata, _items_result(step, judged, ratio, best, report)


def _items_result(step: Step, judged: str, ratio: float, best: str, report: Mapping[str, Any]) -> dg.AssetCheckResult:
    bound = step.plan.checks.baseline_ratio_min
    if not best:
        return step.check(BEATS_BASELINES, True, "no baseline was measured (evaluation.baselines)", "warn")
    text = f"{judged} is {ratio:.3g} times that of {ABOUT.get(best, best)}, bound {bound:g}"
    text += f"; {CHOSEN_ON_TEST}" if report.get("selected_on") == "test" else ""
    return _ratio_result(step, ratio >= bound, text, ratio=ratio, bound=bound, of="over_best_baseline")
