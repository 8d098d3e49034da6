"""The asset ``<dataset>/<model>_drift``: how far the run's vectors, or its lists of the ten best, have moved from those of
the live version, and why."""

import shlex
from collections.abc import Mapping
from typing import Any

import dagster as dg

from graphmill.components.model_asset import describe
from graphmill.components.plan import ModelPlan, Reference
from graphmill.components.worker_asset import Job, Step, WorkerAsset
from graphmill.orchestration.checks import Check
from graphmill.orchestration.metadata import markdown_table, records, scalars
from graphmill.promotion.versions import Versions

FOLDER = "drift"
MOST_MOVED = 20


STAYED = Check(
    "neighbours_stayed",
    "Neighbours changed no more than is usual with another seed. If they did: `findings` says why.",
)
LISTS_STAYED = Check(
    "lists_stayed",
    "The ten best items or tails changed no more than is usual with another seed. If they did: `findings` says why.",
)
NOT_LOST = Check(
    "data_not_lost",
    "The graph and its nodes have not shrunk since the live version. If they have: look at the sources and their rejects.",
)
DATA_FINDINGS = ("data_lost", "nodes_vanished")
"""The findings that :data:`NOT_LOST` covers; the other check covers ``moved``."""

PLOTTED = ("changed", "overlap_10", "cosine_aligned", "shared", "new", "vanished")
"""Numbers to plot over several retrainings."""


def checks_of(plan: ModelPlan) -> tuple[Check, Check]:
    """The checks of the asset for this kind of system."""
    return (STAYED if plan.abilities.vectors else LISTS_STAYED), NOT_LOST


def drift_asset(plan: ModelPlan) -> WorkerAsset:
    """The drift asset. It materializes whatever the findings, even if there is no live version."""
    moved = "vectors" if plan.abilities.vectors else "ten best items or tails"
    return WorkerAsset(
        part="drift",
        stage="validation",
        kinds={"numpy", "markdown"},
        description=(
            f"How far the {moved} moved from those of the live version of {plan.name}. Look here before you promote a "
            "run; `graphmill drift` compares any two."
        ),
        settings=plan.drift,
        checks=checks_of(plan),
        job=_job,
        page=_page,
    )


def _job(step: Step) -> Job | None:
    folder = step.plan.versions_folder
    if Versions(step.path(folder)).current() is None:
        return None
    return {"mode": "drift", "run_dir": step.run_dir, "folder": folder, "drift": step.settings.model_dump()}


def _page(step: Step) -> dg.MaterializeResult[Reference]:
    if not step.report.result:
        nothing = "there is no live version to compare with"
        name = step.plan.name
        promote = f"graphmill promote {shlex.quote(step.run_dir)}"
        text = f"{name} has no live version to compare with. `{promote}` makes this run live."
        return step.result(
            {"run_dir": step.run_dir, "against": "", "changed": None},
            step.page(text, {"finding": nothing}),
            [step.check(each, True, nothing) for each in checks_of(step.plan)],
        )
    folder = f"{step.run_dir}/{FOLDER}"
    report = step.read(f"{folder}/drift.json")
    overall = report["overall"]
    kept = ("overlap_10", "cosine_raw", "cosine_aligned")
    names = (*kept, "shared", "new", "vanished")
    figures = scalars({"changed": report["changed"], **{n: overall.get(n) for n in names}})
    findings = [{"finding": f["name"], "verdict": f["status"], "meaning": f["meaning"]} for f in report["findings"]]
    moved = [
        {
            "node": n["name"] or n["id"],
            "type": n["type"],
            "cosine with itself": n.get("cosine"),
            "kept": n["overlap_10"],
        }
        for n in report["moved"][:MOST_MOVED]
    ]
    rest = {
        "against": report["against"],
        "finding": report["name"],
        "status": report["status"],
        "findings": dg.MetadataValue.md(markdown_table(findings)),
        "by_type": records(
            [{"type": t["name"], **{name: t[name] for name in names if name in t}} for t in report["types"]]
        ),
        "moved_most": records(moved),
        "graph": dg.MetadataValue.md(_graph_table(report["graph"])),
        "report": dg.MetadataValue.path(f"{folder}/drift.json"),
    }
    pages = describe(step)  # the summary links the report that this writes
    page = step.page(_summary(report), rest, plotted=PLOTTED, others=figures)
    return step.result(
        {"run_dir": step.run_dir, "against": report["against"], "changed": report["changed"]},
        page | pages,
        [_check_result(step, each, report) for each in checks_of(step.plan)],
    )


def _summary(report: Mapping[str, Any]) -> str:
    """A summary: the findings that need attention, the most serious first; without any, what moved."""
    findings = report["findings"]
    bad = [
        f"**{f['name'].replace('_', ' ')}**: {f['meaning']} {f['remedy']}".strip()
        for f in findings
        if f["status"] != "pass"
    ]
    text = " ".join(bad) if bad else f"As expected after a retraining. {findings[0]['meaning']}"
    return f"{text} Compared with {report['against']}."


def _graph_table(changed: Mapping[str, Any] | None) -> str:
    if changed is None:
        return "the earlier graph is not known"
    pairs = (changed["before"], changed["after"])
    rows = [("node pairs", *pairs), ("pairs gone", "", changed["lost"]), ("pairs new", "", changed["added"])]
    rows += [(f"nodes: {name}", *counts) for name, counts in changed["node_types"].items()]
    rows += [(f"edges: {name}", *counts) for name, counts in changed["relations"].items()]
    rows += [("mean degree", *changed["mean_degree"]), ("largest degree", *changed["largest_degree"])]
    return markdown_table([{"what": what, "live version": before, "now": after} for what, before, after in rows])


def _check_result(step: Step, each: Check, report: Mapping[str, Any]) -> dg.AssetCheckResult:
    names = DATA_FINDINGS if each is NOT_LOST else ("moved",)
    covered = [finding for finding in report["findings"] if finding["name"] in names]
    bad = [finding for finding in covered if finding["status"] != "pass"]
    text = " ".join(f"{finding['meaning']} {finding['remedy']}" for finding in bad)
    only_warned = all(finding["status"] == "warn" for finding in bad)
    return step.check(
        each,
        not bad,
        text.strip() or f"no such finding; compared with {report['against']}",
        "warn" if only_warned else None,
    )
