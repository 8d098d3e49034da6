"""The asset ``<dataset>/<model>_acceleration_report``, which compares the effect of each acceleration on this data.

It is materialized on demand. No job of the chain includes it, because it trains the model several times.
"""

import math
from collections.abc import Iterator
from typing import Any

import dagster as dg

from graphmill.components.plan import ON_DEMAND, POOL, ModelPlan, Reference, plan_asset
from graphmill.diagnostics.acceleration_report import (
    FILE,
    AccelerationReport,
    AccelerationReportSettings,
    Row,
    read_report,
)
from graphmill.orchestration.checks import Check, PreviousRun
from graphmill.orchestration.failures import user_errors
from graphmill.orchestration.home import OUTPUTS
from graphmill.orchestration.metadata import picture, scalars
from graphmill.orchestration.page import asset_page
from graphmill.orchestration.pipes import WorkerClient
from graphmill.orchestration.resources import AcceleratorResource
from graphmill.orchestration.run_config import config_class, to_settings
from graphmill.settings import put

RUNS = Check(
    "accelerated_runs",
    "The model's own configuration finishes its training on this machine. If not: its row in the table says why.",
)
FINITE = Check(
    "all_are_finite",
    "In every configuration all losses and gradients were finite. If not: do not use that configuration on this data.",
)
CHECKS = (RUNS, FINITE)

PLOTTED = ("configurations", "epochs", "speed_up")
"""Numbers to plot over several reports. Others have long names, which would leave no room for the summary."""


def acceleration_asset(plan: ModelPlan) -> dg.AssetsDefinition:
    """Make the report asset. Each configuration trains in its own process, one after the other."""
    key = plan.key("acceleration_report")
    run_config = config_class(plan.acceleration_report)

    @plan_asset(
        plan,
        "acceleration_report",
        "acceleration",
        inputs=("graph",),
        kinds={"pytorch", "markdown"},
        description=(
            f"What makes {plan.recipe} faster on this data and machine: time, memory and metrics, one row per "
            "configuration. It trains several times, so no job makes it: materialize it when you want to know."
        ),
        checks=CHECKS,
        tags=dict([ON_DEMAND]),
        pool=POOL,
    )
    def acceleration_report(
        context: dg.AssetExecutionContext,
        config: run_config,  # type: ignore[valid-type]
        graph: dict[str, Any],
        accelerator: AcceleratorResource,
        worker: WorkerClient,
    ) -> Iterator[dg.MaterializeResult[Reference]]:
        folder = f"{OUTPUTS}/{plan.dataset}/{plan.name}_acceleration"
        with user_errors():
            asked: AccelerationReportSettings = to_settings(config, plan.acceleration_report)
            environment = accelerator.environment()
        values = plan.settings.model_dump() | {"data": graph["path"]}
        for path, value in accelerator.overrides().items():
            values = put(values, path, value)
        previous = PreviousRun(context.instance, key)
        worker.run(
            context,
            extras={"mode": "acceleration_report", "settings": values, "report": asked.model_dump(), "out": folder},
            asset_key=key,
            cwd=str(plan.root),
            environment=environment,
        )
        yield _materialized(plan, read_report(plan.root / folder / FILE), folder, previous)

    return acceleration_report


def _materialized(
    plan: ModelPlan, report: AccelerationReport, folder: str, previous: PreviousRun
) -> dg.MaterializeResult[Reference]:
    key, rows = plan.key("acceleration_report"), report.rows
    base, accelerated = rows[0], rows[1]
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
    return dg.MaterializeResult(
        asset_key=key,
        value={"report": f"{folder}/{FILE}"},
        metadata={
            **asset_page(
                _summary(base, accelerated, len(rows)),
                plotted=PLOTTED,
                others=figures,
                previous=previous,
                pictures={"time and memory": f"{folder}/bars.png"},
            ),
            "table": dg.MetadataValue.md(report.markdown()),
            "bars": picture(report.picture(), plan.root, f"{folder}/bars.png", "time and memory"),
            "report": dg.MetadataValue.path(f"{folder}/{FILE}"),
        },
        check_results=[
            RUNS.result(key, accelerated.status == "ok", f"accelerated: {accelerated.status}"),
            FINITE.result(
                key, not strange, f"not finite: {', '.join(strange)}" if strange else f"all {len(rows)} configurations"
            ),
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
