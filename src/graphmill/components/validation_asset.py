"""The asset ``<dataset>/<model>_validation``: the health report of the embeddings, with figures, checks and pictures."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import dagster as dg

from graphmill.components.model_asset import describe
from graphmill.components.plan import ModelPlan, Reference
from graphmill.components.worker_asset import Step, WorkerAsset
from graphmill.evaluation.embedding_files import read_embeddings
from graphmill.evaluation.health.check import Group, Verdict, bounds_sentence, setting_names
from graphmill.evaluation.health.checks import CHECKS, GROUPS, HealthThresholds
from graphmill.evaluation.health.figures import TypeFigures
from graphmill.evaluation.health.report import HealthReport
from graphmill.evaluation.pictures.embedding import cosine_histograms, pca_scatter, spectrum_curve
from graphmill.evaluation.probe import LabelSettings
from graphmill.graph.typed_graph import TypedGraph
from graphmill.orchestration.checks import Check
from graphmill.orchestration.metadata import Picture, markdown_table, records, scalars
from graphmill.reports.validation import validate, with_vectors, write_health
from graphmill.usage.probe import keep_probe, probe_embeddings

FOLDER = "validation"
LABELS = Check(
    "labels_known",
    "A linear probe of the vectors predicts the labels of the YAML better than chance, and no worse than one of degrees or "
    "of spectral vectors does. If not: choose another loss or more dimensions, or use the simpler vectors.",
)


def validation_asset(plan: ModelPlan) -> WorkerAsset:
    """The validation asset, computed in its step. It always materializes, whatever the verdicts."""
    return WorkerAsset(
        part="validation",
        stage="validation",
        kinds={"numpy", "markdown"},
        description=(
            f"Whether the vectors of {plan.name} are healthy. If not, the summary names the figures out of bounds, and "
            "each check says what to change. Next: the ranking."
        ),
        checks=checks_of(plan),
        page=_page,
        # Before other ready steps: the report that the ranking writes then takes figures and pictures from here.
        more={"op_tags": {"dagster/priority": "1"}},
    )


def checks_of(plan: ModelPlan) -> list[Check]:
    """The checks of the asset for this kind of system."""
    probed = [LABELS] if plan.validation.labels.file else []
    return [*(Check(each.name, each.text) for each in GROUPS), *probed]


def _measured(step: Step) -> tuple[HealthReport, dict[str, Picture]]:
    """The report, which is also written into the run directory, and the pictures by name."""
    plan, export = step.plan, step.inputs["export"]
    embeddings = read_embeddings(step.path(str(export["files"]["parquet"])))
    graph = TypedGraph.open(step.path(str(export["graph"]["path"])))
    known = setting_names(plan.settings.model_dump())
    report = validate(embeddings, graph, known, graph, plan.checks.part(HealthThresholds))
    write_health(step.path(step.run_dir), report)
    part = with_vectors(embeddings)
    drawn = {
        "pca": pca_scatter(part.vectors, part.types, part.type_names),
        "cosines": cosine_histograms(part.vectors, part.types),
        "spectrum": spectrum_curve(report.figures.spectrum),
    }
    return report, {name: Picture(png, f"{step.run_dir}/{FOLDER}/{name}.png", name) for name, png in drawn.items()}


def _page(step: Step) -> dg.MaterializeResult[Reference]:
    report, pictures = _measured(step)
    labels = step.plan.validation.labels
    probed = _probed(step, labels) if labels.file else {}
    pages = describe(step)
    rest = {
        "status": report.status,
        "verdicts": dg.MetadataValue.md(markdown_table([_verdict_row(verdict) for verdict in report.verdicts])),
        "by_type": records([_type_row(each) for each in report.figures.types]),
        "report": dg.MetadataValue.path(f"{step.run_dir}/{FOLDER}/health.json"),
    }
    if probed:
        rest["labels"] = dg.MetadataValue.md(markdown_table(_probe_rows(probed)))
    page = step.page(_summary(report), rest, plotted=PLOTTED, others=report.numbers(), pictures=pictures)
    return step.result(
        {"run_dir": step.run_dir, "status": report.status},
        page | pages,
        [
            *(_check_result(step, each, report.verdicts) for each in GROUPS),
            *([step.check(LABELS, probed["passed"], probed["sentence"])] if probed else []),
        ],
    )


PLOTTED = (
    "mean_cosine",
    "components_90",
    "effective_rank",
    "duplicated_share",
    "norm_spread",
    "link_signal",
)
"""Numbers to plot over several retrainings."""


def _summary(report: HealthReport) -> str:
    figures, bounds = report.numbers(), bounds_sentence([asdict(verdict) for verdict in report.verdicts])
    vectors = f"{int(figures['rows']):,} vectors of {int(figures['dimensions'])} numbers"
    variance = f"{int(figures['components_90'])} components carry 90 % of the variance"
    begin = "**Healthy.**" if report.status == "pass" else "**Not healthy.**"
    return f"{begin} {vectors}, mean cosine {figures['mean_cosine']:.3f}; {variance}.\n\n{bounds}"


def _check_result(step: Step, each: Group, verdicts: Sequence[Verdict]) -> dg.AssetCheckResult:
    """The result of one check. It passes if all its verdicts pass. A verdict that only warns gives at most a warning."""
    names = {check.name for check in CHECKS if check.group is each}
    judged = [verdict for verdict in verdicts if verdict.name in names]
    bad = [verdict for verdict in judged if verdict.status != "pass"]
    only_warned = all(verdict.status == "warn" for verdict in bad)
    rows = [{**_verdict_row(verdict), "previous": step.previous.figure(verdict.name)} for verdict in judged]
    metadata: dict[str, Any] = scalars({verdict.name.replace("_", " "): verdict.value for verdict in judged[:1]})
    if rows:
        metadata["figures"] = dg.MetadataValue.md(markdown_table(rows))
    if each.picture:
        metadata["picture"] = f"{each.picture}, on the asset's page"
    text = " ".join(f"{verdict.meaning} {verdict.remedy}" for verdict in bad)
    good = " ".join(verdict.meaning for verdict in judged)
    check = Check(each.name, each.text)
    return step.check(check, not bad, text or good or each.absent, "warn" if only_warned else None, metadata)


def _verdict_row(verdict: Verdict) -> dict[str, Any]:
    return {
        "figure": verdict.name.replace("_", " "),
        "value": verdict.value,
        "bound": verdict.threshold,
        "verdict": verdict.status,
        "meaning": verdict.meaning,
        "what to do": verdict.remedy,
    }


def _probed(step: Step, labels: LabelSettings) -> dict[str, Any]:
    """The probe for the labels of the YAML, which is also written into the run directory."""
    export = step.inputs["export"]
    vectors = read_embeddings(step.path(str(export["files"]["parquet"])))
    probed = probe_embeddings(vectors, TypedGraph.open(step.path(str(export["graph"]["path"]))), labels, step.plan.root)
    keep_probe(step.path(step.run_dir), probed)
    return probed


def _probe_rows(probed: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [
        {f"{probed['metric']} from": who, **figures, "vectors minus it": probed["over"].get(who, {}).get("value")}
        for who, figures in probed["scores"].items()
    ]


def _type_row(figures: TypeFigures) -> dict[str, Any]:
    return {
        "type": figures.name,
        "rows": figures.rows,
        "mean_cosine": figures.cosine,
        "effective_rank": figures.effective_rank,
        "rank_share": figures.rank_share,
        "judged": figures.judged,
    }
