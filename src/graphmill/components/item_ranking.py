"""Shows a ranking of items for users: the model beside simple predictors, by each protocol."""

from collections.abc import Mapping
from typing import Any

import dagster as dg

from graphmill.components.against_baselines import baselines_severity
from graphmill.components.plan import ModelPlan, Shown
from graphmill.evaluation.pictures.comparisons import grouped_bars
from graphmill.orchestration.checks import Check, PreviousRun
from graphmill.orchestration.metadata import markdown_table, picture, scalars
from graphmill.orchestration.page import asset_page
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
    "sampled": "sampled negatives (the papers' protocol)",
    "untied": "full ranking, without targets in the same second as the view before",
    "cold": "full ranking, cold items",
    "repeated": "full ranking, only targets that their user had taken before, among all items",
    "new": "full ranking, only targets new to their user, among the items new to the user",
}
"""Prefixes for the model under another protocol. Every other prefix is a simpler model."""
ABOUT = {
    "popularity": "popularity",
    "markov": "the items that most often follow the last item",
    "item_knn": "similar items (item-kNN)",
    "replay": "the items that the user has taken most often and most recently",
    "ease": "EASE",
    "bpr_mf": "BPR-MF, trained on the same data",
}

PLOTTED = ("over_best_baseline", "recall@20", "ndcg@20", "ndcg@10", "hr@10", "mrr", "repeat_share")
"""Numbers to plot over several retrainings, in addition to the metric that chose the epoch."""
MOST_PLOTTED = 10


def shown(plan: ModelPlan, run_dir: str, report: Mapping[str, Any], previous: PreviousRun) -> Shown:
    """The metadata and the check results, from the worker's ``ranking.json``."""
    found = report["figures"]
    model = found["model"]
    protocols = {name: found[name] for name in found if name in PROTOCOLS}
    # "new_markov" is a simpler model under one of the protocols.
    parted = {name: name.partition("_")[::2] for name in found if name not in PROTOCOLS}
    apart = {name: who for name, who in parted.items() if who[0] in PROTOCOLS}
    baselines = {name: found[name] for name in parted if name not in apart and name != "model"}
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
            **{f"{name}_{judged}": own[judged] for name, own in protocols.items() if judged in own},
            "repeat_share": report.get("repeat_share", 0.0),
        }
    )
    plotted = list(dict.fromkeys(name for name in (judged, *PLOTTED, *figures) if name in figures))[:MOST_PLOTTED]
    everyone = {plan.name: model, **baselines}
    cut = [name for name in model if name.endswith("@10")] or list(model)
    bars = grouped_bars(
        list(everyone),
        {metric: [own.get(metric, 0.0) for own in everyone.values()] for metric in cut[:3]},
        axis="full ranking, test",
        title=f"{judged}: {plan.name} {model[judged]:.3g}"
        + (", whose epoch was chosen on test" if on_test else "")
        + (f", best baseline {best} {rival:.3g}" if best else ""),
    )
    table = [{"full ranking": ABOUT.get(name, name), **own} for name, own in everyone.items()]
    under = [{"protocol": "full ranking (primary)", **model}]
    for name, own in protocols.items():
        under.append({"protocol": PROTOCOLS[name], **own})
        under += [
            {"protocol": f"the same: {ABOUT.get(who, who)}", **found[rival]}
            for rival, (protocol, who) in apart.items()
            if protocol == name
        ]
    metadata = {
        **asset_page(
            _summary(plan, judged, found, best, report),
            plotted=plotted,
            others=figures,
            previous=previous,
            pictures={"the model beside simple predictors": f"{run_dir}/ranking.png"},
        ),
        "epoch": report["epoch"],
        **({"optimistic": CHOSEN_ON_TEST} if on_test else {}),
        "beside_the_baselines": dg.MetadataValue.md(markdown_table(table)),
        "protocols": dg.MetadataValue.md(markdown_table(under)),
        "report": dg.MetadataValue.path(f"{run_dir}/ranking.json"),
        "bars": picture(bars, plan.root, f"{run_dir}/ranking.png", "the model beside simple predictors"),
    }
    return metadata, [_check_result(plan, judged, ratio, best, previous, report)]


def _summary(
    plan: ModelPlan, judged: str, found: Mapping[str, Mapping[str, float]], best: str, report: Mapping[str, Any]
) -> str:
    """A summary: the model compared with the best baseline, and what to use instead if it is worse."""
    ours = found["model"][judged]
    text = f"{plan.name}: {judged} {ours:.3g} on the {report.get('split', 'test')} items."
    if best:
        theirs = found[best][judged]
        share = f" by {abs(ours / theirs - 1):.0%}".replace("%", " %") if theirs else ""
        verdict = "ahead" if ours > theirs else "**behind**" if ours < theirs else "level"
        text = f"{text[:-1]}; the best baseline, {ABOUT.get(best, best)}, has {theirs:.3g}: {verdict}{share}."
    if report.get("selected_on") == "test":
        text += f" {CHOSEN_ON_TEST[0].upper()}{CHOSEN_ON_TEST[1:]}."
    advice = str(report.get("advice") or "").partition(", whose run is ")[0]  # without the path; the check has it
    return f"{text} {advice.removesuffix('.')}." if advice else text


def _check_result(
    plan: ModelPlan, judged: str, ratio: float, best: str, previous: PreviousRun, report: Mapping[str, Any]
) -> dg.AssetCheckResult:
    key, bound = plan.key("ranking"), plan.checks.baseline_ratio_min
    if not best:
        return BEATS.result(key, True, "no baseline was measured (evaluation.baselines)")
    return BEATS.result(
        key,
        ratio >= bound,
        f"{judged} is {ratio:.3g} times that of {ABOUT.get(best, best)}, bound {bound:g}"
        + (f"; {CHOSEN_ON_TEST}" if report.get("selected_on") == "test" else "")
        + (f". {report['advice']}" if report.get("advice") else ""),
        severity=baselines_severity(plan),
        metadata=scalars({"ratio": ratio, "bound": bound, "previous": previous.figure("over_best_baseline")}),
    )
