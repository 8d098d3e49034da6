"""The asset ``<dataset>/<model>_drift``: how far the run's vectors have moved from those of the live version, and why."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import dagster as dg

from graphmill.components.plan import POOL, ModelPlan, Reference, plan_asset
from graphmill.evaluation.drift.verdicts import DriftThresholds
from graphmill.orchestration.checks import Check, PreviousRun
from graphmill.orchestration.failures import user_errors
from graphmill.orchestration.metadata import markdown_table, picture, records, scalars
from graphmill.orchestration.page import asset_page, explorer_link, in_words, run_pages
from graphmill.orchestration.pipes import WorkerClient
from graphmill.orchestration.run_config import config_class, to_settings
from graphmill.promotion.versions import Versions

FOLDER = "drift"
SHOWN_MOVED = 20


@dataclass(frozen=True)
class DriftCheck:
    """One check of the UI, the findings that it covers, and its picture."""

    check: Check
    findings: tuple[str, ...]
    picture: str = ""


STAYED = Check(
    "neighbours_stayed",
    "Neighbours changed no more than with another seed. If they did: `findings` says why.",
)
DRIFT_CHECKS = (
    DriftCheck(STAYED, ("moved",), "overlap"),
    DriftCheck(
        Check(
            "data_not_lost",
            "The graph and its nodes have not shrunk since the live version. If they have: look at the sources and "
            "their rejects.",
        ),
        ("data_lost", "data_lost_hidden", "nodes_vanished"),
    ),
    DriftCheck(
        Check(
            "same_ids",
            "Vectors belong to the same ids as before. If not: do not promote; compare how ids and rows are paired.",
        ),
        ("ids_permuted",),
        "moved",
    ),
    DriftCheck(
        Check(
            "no_type_collapsed",
            "No type's vectors have collapsed to one point. If some have: see the validation's checks of that type.",
        ),
        ("type_collapsed",),
        "overlap",
    ),
)

PICTURES = {"overlap": "neighbours kept", "moved": "the nodes that moved most"}
PLOTTED = ("multiple", "overlap_10", "cka", "cosine_aligned", "shared", "new", "vanished")
"""Numbers to plot over several retrainings."""


def drift_asset(plan: ModelPlan) -> dg.AssetsDefinition:
    """Make the drift asset. It materializes whatever the findings, even if there is no live version."""
    key = plan.key("drift")
    run_config = config_class(plan.drift)

    @plan_asset(
        plan,
        "drift",
        "validation",
        inputs=("embeddings",),
        kinds={"numpy", "markdown"},
        description=(
            f"How far the vectors moved from the live version of {plan.name}, in multiples of the effect of another seed. "
            "Look here before you promote a run (docs/how-to/did_my_embeddings_move.md)."
        ),
        checks=[each.check for each in DRIFT_CHECKS],
        pool=POOL,
    )
    def drift(
        context: dg.AssetExecutionContext,
        config: run_config,  # type: ignore[valid-type]
        embeddings: dict[str, Any],
        worker: WorkerClient,
    ) -> Iterator[dg.MaterializeResult[Reference]]:
        previous = PreviousRun(context.instance, key)
        with user_errors():
            asked: DriftThresholds = to_settings(config, plan.drift)
            live = Versions(plan.root / plan.versions_folder).current()
        run_dir = str(embeddings["run_dir"])
        if live is None:
            yield _nothing_live(plan, run_dir)
            return
        extras = {"mode": "drift", "run_dir": run_dir, "folder": plan.versions_folder, "drift": asked.model_dump()}
        worker.run(context, extras=extras, asset_key=key, cwd=str(plan.root))
        report = json.loads((plan.root / run_dir / FOLDER / "drift.json").read_text(encoding="utf-8"))
        shown = _materialized(plan, run_dir, report, previous)
        yield shown._replace(metadata={**(shown.metadata or {}), **run_pages(plan.root, run_dir)})

    return drift


def _nothing_live(plan: ModelPlan, run_dir: str) -> dg.MaterializeResult[Reference]:
    key, said = plan.key("drift"), "there is no live version to compare with"
    return dg.MaterializeResult(
        asset_key=key,
        value={"run_dir": run_dir, "against": "", "multiple": None},
        metadata={
            "summary": in_words(
                f"{plan.name} has no live version to compare with. `graphmill promote` makes one live."
            ),
            "finding": said,
            **explorer_link(key),
        },
        check_results=[each.check.result(key, True, said) for each in DRIFT_CHECKS],
    )


def _materialized(
    plan: ModelPlan, run_dir: str, report: Mapping[str, Any], previous: PreviousRun
) -> dg.MaterializeResult[Reference]:
    key, folder = plan.key("drift"), f"{run_dir}/{FOLDER}"
    overall = report["overall"]
    kept = ("overlap_10", "overlap_50", "cka", "cosine_raw", "cosine_aligned", "residual")
    names = (*kept, "shared", "new", "vanished")
    figures = scalars({"multiple": report["multiple"], **{n: overall[n] for n in names}})
    noise = report["seed_noise"]
    unit = {"another seed": {name: noise[name] for name in ("overlap_10", "overlap_50", "cka", "cosine_aligned")}}
    drawn = {
        name: picture((plan.root / folder / f"{name}.png").read_bytes(), plan.root, f"{folder}/{name}.png", title)
        for name, title in PICTURES.items()
    }
    findings = [{"finding": f["name"], "verdict": f["status"], "meaning": f["meaning"]} for f in report["findings"]]
    by_type = [{"type": own["name"], **{name: own[name] for name in names}} for own in report["types"]]
    moved = [
        {"node": n["name"] or n["id"], "type": n["type"], "cosine with itself": n["cosine"], "kept": n["overlap_10"]}
        for n in report["moved"][:SHOWN_MOVED]
    ]
    return dg.MaterializeResult(
        asset_key=key,
        value={"run_dir": run_dir, "against": report["against"], "multiple": report["multiple"]},
        metadata={
            **asset_page(
                _summary(report),
                plotted=PLOTTED,
                others=figures,
                previous=previous,
                baselines=unit,
                pictures={title: f"{folder}/{name}.png" for name, title in PICTURES.items()},
            ),
            "against": report["against"],
            "finding": report["name"],
            "status": report["status"],
            "seed_effect": f"measured on {noise['pairs']} pairs of runs" if noise["pairs"] else "assumed, not measured",
            "findings": dg.MetadataValue.md(markdown_table(findings)),
            "by_type": records(by_type),
            "moved_most": records(moved),
            "graph": dg.MetadataValue.md(_graph_table(report["graph"])),
            "report": dg.MetadataValue.path(f"{folder}/drift.json"),
            **drawn,
        },
        check_results=[_check_result(plan, each, report, drawn) for each in DRIFT_CHECKS],
    )


def _summary(report: Mapping[str, Any]) -> str:
    """A summary: the findings that need attention, the most serious first; without any, what moved."""
    findings = report["findings"]
    bad = [
        f"**{f['name'].replace('_', ' ')}**: {f['meaning']} {f['remedy']}".strip()
        for f in findings
        if f["status"] != "pass"
    ]
    said = " ".join(bad) if bad else f"As expected after a retraining. {findings[0]['meaning']}"
    return f"{said} Compared with {report['against']}."


def _graph_table(changed: Mapping[str, Any] | None) -> str:
    if changed is None:
        return "the earlier graph is not known"
    pairs = (changed["before"], changed["after"])
    rows = [("node pairs", *pairs), ("pairs gone", "", changed["lost"]), ("pairs new", "", changed["added"])]
    rows += [(f"nodes: {name}", *counts) for name, counts in changed["node_types"].items()]
    rows += [(f"edges: {name}", *counts) for name, counts in changed["relations"].items()]
    rows += [("mean degree", *changed["mean_degree"]), ("largest degree", *changed["largest_degree"])]
    return markdown_table([{"what": what, "live version": before, "now": after} for what, before, after in rows])


def _check_result(
    plan: ModelPlan, each: DriftCheck, report: Mapping[str, Any], drawn: Mapping[str, dg.MetadataValue]
) -> dg.AssetCheckResult:
    own = [finding for finding in report["findings"] if finding["name"] in each.findings]
    bad = [finding for finding in own if finding["status"] != "pass"]
    told = " ".join(f"{finding['meaning']} {finding['remedy']}" for finding in bad)
    only_warned = all(finding["status"] == "warn" for finding in bad)
    return each.check.result(
        plan.key("drift"),
        not bad,
        told.strip() or f"no such finding; compared with {report['against']}",
        severity="warn" if only_warned else plan.checks.severity,
        metadata={"picture": drawn[each.picture]} if each.picture else {},
    )
