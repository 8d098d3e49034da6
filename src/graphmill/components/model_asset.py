"""The asset ``<dataset>/<model>_model``: a training in the worker process, its figures, and checks of its loss."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import dagster as dg

from graphmill.components.plan import POOL, ModelPlan, Reference, plan_asset
from graphmill.errors import SettingsError
from graphmill.evaluation.pictures.embedding import loss_curve, memory_curve, metric_curve
from graphmill.export.remote import is_url
from graphmill.orchestration.checks import Check, PreviousRun
from graphmill.orchestration.curves import Curve, total_loss
from graphmill.orchestration.failures import user_errors
from graphmill.orchestration.launchers.settings import LauncherSettings
from graphmill.orchestration.metadata import picture, scalars
from graphmill.orchestration.page import asset_page, sparkline
from graphmill.orchestration.pipes import WorkerClient, WorkerReport
from graphmill.orchestration.progress import duration
from graphmill.orchestration.resources import AcceleratorResource
from graphmill.orchestration.run_config import config_class, to_settings
from graphmill.training.machine import require_processes
from graphmill.training.metrics_log import MetricsLog

# The component, the upstream asset and the accelerator resource set these.
NOT_IN_LAUNCHPAD = ("recipe", "data", "preset", "acceleration.device")

FINITE = Check(
    "loss_finite",
    "Every epoch's loss is a finite number. If not: lower training.learning_rate, or set acceleration.precision: fp32.",
)
FALLING = Check(
    "loss_falling",
    "The last quarter of the epochs has a lower mean loss than the first. If not: train longer, or change the learning "
    "rate.",
)
STEADY = Check(
    "loss_steady",
    "The loss stays close to its trend in the second half of the epochs. If it swings: lower training.learning_rate.",
)
MESSAGES = Check(
    "edges_carry_messages",
    "Enough of each relation's edges carry messages in a training step. If not: lower acceleration.supervision_fraction.",
)
CHECKS = (FINITE, FALLING, STEADY, MESSAGES)


def model_asset(plan: ModelPlan) -> dg.AssetsDefinition:
    """Make the training asset. Its value is a small reference to the run directory."""
    key = plan.key("model")
    run_config = config_class(plan.settings, without=NOT_IN_LAUNCHPAD)

    @plan_asset(
        plan,
        "model",
        "training",
        inputs=("graph",),
        kinds={"pytorch", plan.recipe},
        description=(
            f"Trains {plan.recipe}; the run's page shows live figures. Shift-click Materialize for other settings: a "
            f"finished run is reused, and more epochs continue it. Defaults: preset `{plan.preset}` ({plan.preset_reason})."
        ),
        checks=CHECKS,
        pool=POOL,
    )
    def model(
        context: dg.AssetExecutionContext,
        config: run_config,  # type: ignore[valid-type]
        graph: dict[str, Any],
        accelerator: AcceleratorResource,
        worker: WorkerClient,
    ) -> Iterator[dg.MaterializeResult[Reference]]:
        with user_errors():
            given = {"data": graph["path"], **accelerator.overrides()}
            settings: Any = to_settings(config, plan.settings, given=given)
            launcher = worker.place(plan.launcher)
            environment = {} if launcher.elsewhere else accelerator.environment()
            _require_what_comes_after(plan, settings, launcher)
        previous = PreviousRun(context.instance, key)
        report = worker.run(
            context,
            extras={"settings": settings.model_dump(), "run_root": plan.run_root},
            asset_key=key,
            cwd=str(plan.root),
            processes=settings.acceleration.processes,
            environment=environment,
            launcher=launcher,
        )
        yield _materialized(plan, report, graph, previous, launcher.kind)

    return model


def _require_what_comes_after(plan: ModelPlan, settings: Any, launcher: LauncherSettings) -> None:
    """Raise :class:`SettingsError` now for settings with which the training could not start, or which would fail only
    after it."""
    if not launcher.elsewhere:
        require_processes(settings.acceleration.processes, "the Launchpad")
    if plan.publish and not settings.export.csv:
        raise SettingsError("'publish' in the defs.yaml copies the CSV, but export.csv is off: set export.csv: true")
    if plan.publish and not is_url(plan.publish) and (plan.root / plan.publish).is_dir():
        raise SettingsError(f"publish: {plan.publish} is a folder; name the file to which the CSV is copied")


def _materialized(
    plan: ModelPlan, report: WorkerReport, graph: Mapping[str, Any], previous: PreviousRun, launcher: str
) -> dg.MaterializeResult[Reference]:
    result = report.result
    log = MetricsLog(plan.root / str(result["run_dir"]) / "metrics.jsonl")
    epochs = log.read("epoch")
    losses = [total_loss(record["losses"]) for record in epochs]
    figures, chosen = _figures(report, losses), (f"valid_{plan.selection_metric}", f"test_{plan.selection_metric}")
    return dg.MaterializeResult(
        asset_key=plan.key("model"),
        value={**{name: result[name] for name in ("run_dir", "fingerprint", "data_version")}, "graph": dict(graph)},
        data_version=dg.DataVersion(str(result["data_version"])),
        metadata={
            **asset_page(
                _summary(plan, losses, result),
                plotted=("loss", *chosen, "epochs_done", "seconds", "seconds_per_step", "peak_memory_bytes"),
                others=figures,
                previous=previous,
                pictures={name: f"{result['run_dir']}/{name}.png" for name in ("losses", "metrics") if epochs},
            ),
            "run_dir": dg.MetadataValue.path(str(result["run_dir"])),
            "fingerprint": result["fingerprint"],
            "device": str(report.started.get("device", "")),
            "device_reason": str(report.started.get("device_reason", "")),
            "preset": plan.preset,
            "preset_reason": plan.preset_reason,
            "reused": bool(result.get("reused")),
            "launcher": launcher,
            **_pictures(plan, epochs, result),
            **_notes(result),
        },
        check_results=_check_results(plan, losses, result, previous),
    )


def _summary(plan: ModelPlan, losses: Sequence[float], result: Mapping[str, Any]) -> str:
    chosen, metrics = plan.selection_metric, result.get("metrics") or {}
    reached = [
        f"{chosen} {metrics[name]:.4f} on {split}"
        for name, split in ((f"valid_{chosen}", "validation"), (f"test_{chosen}", "the test"))
        if name in metrics
    ]
    begin = f"Trained in {duration(float(result.get('seconds') or 0.0))}"
    if result.get("reused"):
        begin = "An earlier run with these settings and data is reused"
    text = f"{begin}: {plan.recipe}, {result.get('epochs_done')} epochs"
    if result.get("best_epoch"):
        text += f", the best is {result['best_epoch']}"
    text += f"; {', '.join(reached)}." if reached else "."
    drawn = sparkline(losses)
    return text + (f"\n\nLoss {drawn} {losses[-1]:.4g}" if drawn else "")


def _figures(report: WorkerReport, losses: list[float]) -> dict[str, Any]:
    """The numbers that the UI plots over materializations: only a few, with stable names."""
    result = report.result
    estimate = report.progress.get("estimate") or report.started.get("estimate") or {}
    return scalars(
        {
            "loss": losses[-1] if losses else None,
            **(result.get("metrics") or {}),
            **{name: result.get(name) for name in ("epochs_done", "steps_done", "best_epoch", "exported_epoch")},
            **{name: result.get(name) for name in ("seconds", "seconds_per_step", "seconds_per_epoch")},
            "estimated_seconds_total": estimate.get("seconds_total"),
            "peak_memory_bytes": result.get("peak_memory_bytes"),
            # Measured and planned memory of the accelerator if there is one, else of the process.
            "peak_device_memory_bytes": result.get("peak_device_memory_bytes") or None,
            "planned_memory_bytes": result.get("planned_memory_bytes") or None,
        }
    )


def _pictures(
    plan: ModelPlan, epochs: Sequence[Mapping[str, Any]], result: Mapping[str, Any]
) -> dict[str, dg.MetadataValue]:
    root, shown = plan.root, {}
    if epochs:
        shown["loss_curve"] = picture(loss_curve(epochs), root, f"{result['run_dir']}/losses.png", "loss")
    if any(record.get("valid") for record in epochs):
        png = metric_curve(epochs, selection=plan.selection_metric)
        splits = {str(record.get("split", "valid")) for record in epochs if record.get("valid")}
        about = "validation metrics" if splits == {"valid"} else "metrics that chose the epoch"
        shown["metric_curve"] = picture(png, root, f"{result['run_dir']}/metrics.png", about)
    if memory := result.get("memory"):
        samples = [dict(zip(("seconds", "resident", "device"), sample, strict=True)) for sample in memory]
        shown["memory_curve"] = picture(memory_curve(samples), root, f"{result['run_dir']}/memory.png", "memory")
    return shown


def _notes(result: Mapping[str, Any]) -> dict[str, dg.MetadataValue]:
    notes = [str(note) for note in (*(result.get("notes") or ()), *(result.get("shrunk") or ()))]
    return {"notes": dg.MetadataValue.md("\n".join(f"- {note}" for note in notes))} if notes else {}


def _check_results(
    plan: ModelPlan, losses: list[float], result: Mapping[str, Any], previous: PreviousRun
) -> list[dg.AssetCheckResult]:
    key, severity, curve = plan.key("model"), plan.checks.severity, Curve(losses)
    wrong = curve.first_nonfinite
    return [
        FINITE.result(
            key,
            not wrong,
            f"the loss of epoch {wrong} is {losses[wrong - 1]}" if wrong else f"all {len(losses)} epochs",
            severity="error",
            metadata={"epochs": len(losses)},
        ),
        FALLING.result(
            key,
            math.isnan(curve.drop) or curve.drop > 0,
            _told(curve.drop, "the mean loss fell by {:.4g}"),
            severity=severity,
            metadata=scalars({"drop": curve.drop, "last": losses[-1:], "previous_loss": previous.figure("loss")}),
        ),
        STEADY.result(
            key,
            math.isnan(curve.swing) or curve.swing <= plan.checks.loss_swing_max,
            _told(curve.swing, "relative swing {:.3g}, bound " + f"{plan.checks.loss_swing_max:g}"),
            severity=severity,
            metadata=scalars({"swing": curve.swing, "bound": plan.checks.loss_swing_max}),
        ),
        _messages_result(plan, result),
    ]


def _told(value: float, sentence: str) -> str:
    return "too few epochs to judge this" if math.isnan(value) else sentence.format(value)


def _messages_result(plan: ModelPlan, result: Mapping[str, Any]) -> dg.AssetCheckResult:
    bound = plan.checks.message_share_min
    share = (result.get("health") or {}).get("message_coverage")
    if share is None:
        return MESSAGES.result(plan.key("model"), True, "not measured: this system passes no messages")
    return MESSAGES.result(
        plan.key("model"),
        share >= bound,
        f"the relation with the least has {share:.0%} of its training edges, bound {bound:.0%}; "
        "lower sampling.supervision_fraction to raise it",
        severity=plan.checks.severity,
        metadata=scalars({"least_share": share, "bound": bound}),
    )
