"""The asset ``<dataset>/<model>_acceleration_report``, which compares the effect of each acceleration on this data.

It is materialized on demand. No job of the chain includes it, because it trains the model several times.
"""

import math

import dagster as dg

from graphmill.components.plan import ModelPlan, Reference
from graphmill.components.worker_asset import Job, Step, WorkerAsset
from graphmill.diagnostics.acceleration_report import FILE, Row, read_report
from graphmill.orchestration.checks import Check
from graphmill.orchestration.home import OUTPUTS
from graphmill.orchestration.metadata import Picture, scalars

RUNS = Check(
    "accelerated_runs",
    "The model's own configuration finishes its training on this machine. If not: its row in the table says why.",
)
FINITE = Check(
    "all_are_finite",
    "In every configuration all losses and gradients were finite. If not: do not use that configuration on this data.",
)

PLOTTED = ("configurations", "epochs", "speed_up")
"""Numbers to plot over several reports. Others have long names, which would leave no room for the summary."""


def acceleration_asset(plan: ModelPlan) -> WorkerAsset:
    """The report asset. Each configuration trains in its own process, one after the other."""
    return WorkerAsset(
        part="acceleration_report",
        stage="acceleration",
        inputs=("graph",),
        kinds={"pytorch", "markdown"},
        description=(
            f"What makes {plan.system} faster on this data and machine: time, memory and metrics, one row per "
            "configuration. It trains several times, so no job makes it: materialize it when you want to know."
        ),
        settings=plan.acceleration_report,
        checks=(RUNS, FINITE),
        job=_job,
        page=_page,
        on_demand=True,
    )


def _folder(plan: ModelPlan) -> str:
    return f"{OUTPUTS}/{plan.dataset}/{plan.name}_acceleration"


def _job(step: Step) -> Job:
    settings = step.accelerator.applied(step.plan.settings.model_dump() | {"data": step.inputs["graph"]["path"]})
    job = {"mode": "acceleration_report", "settings": settings, "report": step.settings.model_dump()}
    return {**job, "out": _folder(step.plan)}


def _page(step: Step) -> dg.MaterializeResult[Reference]:
    folder = _folder(step.plan)
    report = read_report(step.path(f"{folder}/{FILE}"))
    rows, (base, accelerated) = report.rows, report.rows[:2]
    figures = scalars(
        {
            "configurations": len(rows),
            "epochs": report.epochs,
            **{f"seconds_per_epoch_{row.name}": _known(row.seconds_per_epoch) for row in (base, accelerated)},
            **{f"peak_memory_bytes_{row.name}": _known(row.peak_memory_bytes) for row in (base, accelerated)},
            "speed_up": _known(_ratio(base, accelerated)),
        }
    )
    strange = [row.name for row in rows if not row.finite]
    finite = f"not finite: {', '.join(strange)}" if strange else f"all {len(rows)} configurations"
    rest = {
        "table": dg.MetadataValue.md(report.markdown()),
        "report": dg.MetadataValue.path(f"{folder}/{FILE}"),
    }
    return step.result(
        {"report": f"{folder}/{FILE}"},
        step.page(
            _summary(base, accelerated, len(rows)),
            rest,
            plotted=PLOTTED,
            others=figures,
            pictures={"bars": Picture(report.picture(), f"{folder}/bars.png", "time and memory")},
        ),
        [
            step.check(RUNS, accelerated.status == "ok", f"accelerated: {accelerated.status}", "warn"),
            step.check(FINITE, not strange, finite, "warn"),
        ],
    )


def _summary(base: Row, accelerated: Row, configurations: int) -> str:
    if accelerated.status != "ok":
        return f"**The model's own configuration did not train to the end**: {accelerated.status}."
    times = _ratio(base, accelerated)
    faster = f"{times:.2g} times as fast as" if math.isfinite(times) else "beside"
    return (
        f"{configurations} configurations were trained, one after the other. The model's own is {faster} the one without "
        f"acceleration: {accelerated.seconds_per_epoch:.3g} s per epoch."
    )


def _ratio(base: Row, row: Row) -> float:
    return base.seconds_per_epoch / row.seconds_per_epoch if row.seconds_per_epoch else math.nan


def _known(value: float) -> float | None:
    """The number to four digits, or None if it is not known."""
    return float(f"{value:.4g}") if math.isfinite(value) else None
