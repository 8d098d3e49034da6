"""The asset ``<dataset>/<model>_validation``: the health report of the embeddings, with figures, checks and pictures."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import dagster as dg
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from graphmill.components.embeddings_asset import read_vectors, texts, types_without_vectors
from graphmill.components.plan import ModelPlan, Reference, plan_asset
from graphmill.errors import InputError
from graphmill.evaluation.baselines.links import SimilarityScorer
from graphmill.evaluation.health.check import Group, Verdict
from graphmill.evaluation.health.checks import CHECKS, GROUPS
from graphmill.evaluation.health.figures import TypeFigures
from graphmill.evaluation.health.remedies import setting_names
from graphmill.evaluation.health.report import HealthReport, health_report
from graphmill.evaluation.health.thresholds import HealthThresholds
from graphmill.evaluation.pictures.embedding import cosine_histograms, pca_scatter, spectrum_curve
from graphmill.evaluation.ranking.links import LinkRanking, rank_links
from graphmill.evaluation.ranking.queries import link_queries
from graphmill.graph.typed_graph import TypedGraph
from graphmill.orchestration.checks import Check, PreviousRun
from graphmill.orchestration.failures import user_errors
from graphmill.orchestration.metadata import markdown_table, picture, records, scalars
from graphmill.orchestration.page import asset_page, run_pages
from graphmill.reports.validation import write_health

# Number of links per relation for the ranking by cosine: enough to detect shuffled ids within seconds.
SIGNAL_QUERIES = 200
FOLDER = "validation"


NAMED = Check(
    "no_named_failure",
    "The report finds no named failure. If it does: docs/reference/checks.md says what to change.",
)

Pictures = Mapping[str, dg.MetadataValue]


def validation_asset(plan: ModelPlan) -> dg.AssetsDefinition:
    """Make the validation asset. It always materializes, whatever the verdicts."""
    key = plan.key("validation")

    @plan_asset(
        plan,
        "validation",
        "validation",
        inputs=("embeddings",),
        kinds={"numpy", "markdown"},
        description=(
            f"Whether the vectors of {plan.name} are healthy. If not, the summary names the failure, and each "
            "check says what to change (docs/reference/checks.md). Next: the ranking."
        ),
        checks=[NAMED, *(Check(each.name, each.text) for each in groups_of(plan))],
    )
    def validation(
        context: dg.AssetExecutionContext, embeddings: dict[str, Any]
    ) -> Iterator[dg.MaterializeResult[Reference]]:
        previous = PreviousRun(context.instance, key)
        with user_errors():
            report, pictures = _measured(plan, embeddings)
            pages = run_pages(plan.root, str(embeddings["run_dir"]))
        yield _materialized(plan, embeddings, report, pictures, pages, previous)

    return validation


def groups_of(plan: ModelPlan) -> list[Group]:
    """The groups of health checks for this kind of system."""
    return [each for each in GROUPS if each.of_items or plan.system.ranks != "items"]


def _measured(plan: ModelPlan, embeddings: Mapping[str, Any]) -> tuple[HealthReport, Pictures]:
    """The report and the pictures by name, which are also written into the run directory."""
    rows, vectors = read_vectors(plan.root / str(embeddings["files"]["parquet"]))
    graph = TypedGraph.open(plan.root / str(embeddings["graph"]["path"]))
    signal = _signal(vectors, graph)
    if plan.system.ranks == "items" and (without := types_without_vectors(rows, vectors)):
        kept = ~np.isin(texts(rows["node_type"]), without)
        rows, vectors = rows.filter(pa.array(kept)), vectors[kept]
    names, codes = np.unique(texts(rows["node_type"]), return_inverse=True)
    type_names = [str(name) for name in names]
    thresholds = plan.checks.part(HealthThresholds)
    known = setting_names(plan.settings.model_dump())
    report = health_report(vectors, codes, type_names, thresholds=thresholds, ranking=signal, settings=known)
    folder = f"{embeddings['run_dir']}/{FOLDER}"
    write_health(plan.root / str(embeddings["run_dir"]), report)
    drawn = {
        "pca": pca_scatter(vectors, codes, type_names),
        "cosines": cosine_histograms(vectors, codes),
        "spectrum": spectrum_curve(report.figures.spectrum),
    }
    return report, {name: picture(png, plan.root, f"{folder}/{name}.png", name) for name, png in drawn.items()}


def _signal(vectors: NDArray[np.float32], graph: TypedGraph) -> LinkRanking | None:
    """The ranking of held-out links by cosine, or None if there are none."""
    try:
        queries = link_queries(graph, "test", max_per_relation=SIGNAL_QUERIES)
    except InputError:
        return None
    return rank_links(SimilarityScorer(vectors, graph), queries, auc_negatives=0)


def _materialized(
    plan: ModelPlan,
    embeddings: Mapping[str, Any],
    report: HealthReport,
    pictures: Pictures,
    pages: Mapping[str, Any],
    previous: PreviousRun,
) -> dg.MaterializeResult[Reference]:
    key, figures = plan.key("validation"), report.numbers()
    folder = f"{embeddings['run_dir']}/{FOLDER}"
    named = f"{report.failure}: {report.detail}" if report.failure else "none"
    return dg.MaterializeResult(
        asset_key=key,
        value={"run_dir": embeddings["run_dir"], "status": report.status, "failure": report.failure},
        metadata={
            **asset_page(
                _summary(report),
                plotted=PLOTTED,
                others=figures,
                previous=previous,
                pictures={name: f"{folder}/{name}.png" for name in pictures},
            ),
            "status": report.status,
            "failure": named,
            "verdicts": dg.MetadataValue.md(markdown_table([_verdict_row(verdict) for verdict in report.verdicts])),
            "by_type": records([_type_row(own) for own in report.figures.types]),
            "report": dg.MetadataValue.path(f"{folder}/health.json"),
            **pictures,
            **pages,
        },
        check_results=[
            NAMED.result(
                key,
                not report.failure,
                named if report.failure else "the embedding has none of the named failures",
                severity=plan.checks.severity,
            ),
            *(_check_result(plan, each, report.verdicts, previous, pictures) for each in groups_of(plan)),
        ],
    )


PLOTTED = (
    "mean_cosine",
    "components_90",
    "effective_rank",
    "duplicated_share",
    "norm_spread",
    "type_separation",
    "disease_cosine",
    "link_signal",
)
"""Numbers to plot over several retrainings."""


def _summary(report: HealthReport) -> str:
    figures, judged = report.numbers(), report.verdicts
    good = sum(verdict.status == "pass" for verdict in judged)
    count = f"{good} of {len(judged)} figures are within their bounds"
    vectors = f"{int(figures['rows']):,} vectors of {int(figures['dimensions'])} numbers"
    variance = f"{int(figures['components_90'])} components carry 90 % of the variance"
    if report.failure:
        return f"**Not healthy** ({report.failure}). {report.detail} {count}. {vectors}; {variance}."
    begin = "**Healthy**" if report.status == "pass" else "**Not healthy**"
    return f"{begin}: {count}. {vectors}, mean cosine {figures['mean_cosine']:.3f}; {variance}."


def _check_result(
    plan: ModelPlan,
    each: Group,
    verdicts: Sequence[Verdict],
    previous: PreviousRun,
    pictures: Pictures,
) -> dg.AssetCheckResult:
    """The result of one check. It passes if all its verdicts pass. A verdict that only warns gives at most a warning."""
    names = {check.name for check in CHECKS if check.group is each}
    own = [verdict for verdict in verdicts if verdict.name in names]
    bad = [verdict for verdict in own if verdict.status != "pass"]
    told = " ".join(f"{verdict.meaning} {verdict.remedy}" for verdict in bad)
    only_warned = all(verdict.status == "warn" for verdict in bad)
    rows = [{**_verdict_row(verdict), "previous": previous.figure(verdict.name)} for verdict in own]
    metadata: dict[str, Any] = scalars({verdict.name: verdict.value for verdict in own})
    if rows:
        metadata["figures"] = dg.MetadataValue.md(markdown_table(rows))
    if each.picture in pictures:
        metadata["picture"] = pictures[each.picture]
    good = " ".join(verdict.meaning for verdict in own)
    return Check(each.name, each.text).result(
        plan.key("validation"),
        not bad,
        told or good or each.absent,
        severity="warn" if only_warned else plan.checks.severity,
        metadata=metadata,
    )


def _verdict_row(verdict: Verdict) -> dict[str, Any]:
    return {
        "figure": verdict.name,
        "value": verdict.value,
        "bound": verdict.threshold,
        "verdict": verdict.status,
        "meaning": verdict.meaning,
        "what to do": verdict.remedy,
    }


def _type_row(own: TypeFigures) -> dict[str, Any]:
    return {
        "type": own.name,
        "rows": own.rows,
        "mean_cosine": own.cosine,
        "effective_rank": own.effective_rank,
        "rank_share": own.rank_share,
        "top1_ratio": own.top1_ratio,
        "judged": own.judged,
    }
