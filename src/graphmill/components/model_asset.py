"""The asset ``<dataset>/<model>_model``: a training in the worker process, its figures, and the checks on its loss."""

import math
from collections.abc import Iterator, Mapping
from typing import Any

import dagster as dg

from graphmill.components.plan import POOL, ModelPlan
from graphmill.graph.typed_graph import TypedGraph
from graphmill.orchestration.checks import Check, PreviousRun, compared, specs
from graphmill.orchestration.curves import Curve
from graphmill.orchestration.failures import user_errors
from graphmill.orchestration.metadata import picture, scalars
from graphmill.orchestration.pictures import draw_losses
from graphmill.orchestration.pipes import WorkerClient, WorkerReport
from graphmill.orchestration.resources import AcceleratorResource
from graphmill.orchestration.run_config import config_class, to_settings
from graphmill.training.metrics_log import MetricsLog

CODE_VERSION = "1"
# The component, the upstream asset and the accelerator resource decide these.
NOT_IN_LAUNCHPAD = ("recipe", "data", "preset", "acceleration.device", "acceleration.allow_fallback")

FINITE = Check("loss_finite", "Every epoch's loss is a finite number.")
FALLING = Check("loss_falling", "The last quarter of the epochs has a lower mean loss than the first.")
STEADY = Check("loss_steady", "The loss does not swing about its trend in the second half of the epochs.")
MESSAGES = Check("edges_carry_messages", "Enough of each relation's edges carry messages in a training step.")
CHECKS = (FINITE, FALLING, STEADY, MESSAGES)

Reference = dict[str, Any]


def model_asset(plan: ModelPlan) -> dg.AssetsDefinition:
    """The training asset; its value is a small reference to the run directory."""
    key = plan.key("model")
    run_config = config_class(plan.settings, without=NOT_IN_LAUNCHPAD)

    @dg.asset(
        key=key,
        ins={"graph": dg.AssetIn(plan.graph_key)},
        group_name=plan.group("training"),
        kinds={"pytorch", plan.recipe},
        owners=list(plan.owners),
        description=(
            f"{plan.recipe} trained on the graph of {plan.dataset}, in a process of its own. A run with the same data "
            "and settings is reused; `training.force` starts over; more `training.epochs` continue it."
        ),
        code_version=CODE_VERSION,
        pool=POOL,
        check_specs=specs(key, CHECKS),
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
            environment = accelerator.environment()
        previous = PreviousRun(context.instance, key)
        report = worker.run(
            context,
            extras={"settings": settings.model_dump(), "run_root": plan.run_root},
            asset_key=key,
            cwd=str(plan.root),
            processes=settings.acceleration.processes,
            environment=environment,
        )
        yield _materialized(plan, report, graph, settings, previous)

    return model


def _materialized(
    plan: ModelPlan, report: WorkerReport, graph: Mapping[str, Any], settings: Any, previous: PreviousRun
) -> dg.MaterializeResult[Reference]:
    result = report.result
    log = MetricsLog(plan.root / str(result["run_dir"]) / "metrics.jsonl")
    epochs = log.read("epoch")
    losses = [float(record["losses"]["total"]) for record in epochs]
    curve = draw_losses(epochs, log.path.parent / "losses.png")
    figures = _figures(report, losses)
    return dg.MaterializeResult(
        asset_key=plan.key("model"),
        value={
            "run_dir": result["run_dir"],
            "fingerprint": result["fingerprint"],
            "data_version": result["data_version"],
            "graph": dict(graph),
        },
        data_version=dg.DataVersion(str(result["data_version"])),
        metadata={
            **figures,
            "run_dir": dg.MetadataValue.path(str(result["run_dir"])),
            "fingerprint": result["fingerprint"],
            "device": str(report.started.get("device", "")),
            "device_reason": str(report.started.get("device_reason", "")),
            "reused": bool(result.get("reused")),
            "figures": compared(figures, previous),
            **({"loss_curve": picture(curve, "loss")} if curve else {}),
            **_notes(result),
        },
        check_results=_check_results(plan, losses, graph, settings, previous),
    )


def _figures(report: WorkerReport, losses: list[float]) -> dict[str, Any]:
    """The numbers that the UI plots over materializations: few, and under stable names."""
    result = report.result
    estimate = report.progress.get("estimate") or report.started.get("estimate") or {}
    return scalars(
        {
            "loss": losses[-1] if losses else None,
            **(result.get("metrics") or {}),
            "epochs_done": result.get("epochs_done"),
            "steps_done": result.get("steps_done"),
            "best_epoch": result.get("best_epoch"),
            "seconds": result.get("seconds"),
            "seconds_per_step": result.get("seconds_per_step"),
            "seconds_per_epoch": result.get("seconds_per_epoch"),
            "estimated_seconds_total": estimate.get("seconds_total"),
            "peak_memory_bytes": result.get("peak_memory_bytes"),
        }
    )


def _notes(result: Mapping[str, Any]) -> dict[str, dg.MetadataValue]:
    notes = [str(note) for note in (*(result.get("notes") or ()), *(result.get("shrunk") or ()))]
    return {"notes": dg.MetadataValue.md("\n".join(f"- {note}" for note in notes))} if notes else {}


def _check_results(
    plan: ModelPlan, losses: list[float], graph: Mapping[str, Any], settings: Any, previous: PreviousRun
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
        _messages_result(plan, graph, settings.acceleration),
    ]


def _told(value: float, sentence: str) -> str:
    return "too few epochs to say" if math.isnan(value) else sentence.format(value)


def _messages_result(plan: ModelPlan, graph: Mapping[str, Any], acceleration: Any) -> dg.AssetCheckResult:
    bound = plan.checks.message_share_min
    shares = message_shares(TypedGraph.open(plan.root / graph["path"]).manifest["relations"], acceleration)
    least: dict[str, Any] = min(shares, key=lambda row: row["share"], default={"relation": "none", "share": 1.0})
    return MESSAGES.result(
        plan.key("model"),
        least["share"] >= bound,
        f"least: {least['relation']} with {least['share']:.0%} of its edges, bound {bound:.0%}; "
        "acceleration.supervision_fraction and the graph's split lower it",
        severity=plan.checks.severity,
        metadata=scalars({"least_share": least["share"], "relation": least["relation"], "bound": bound}),
    )


def message_shares(relations: list[Mapping[str, Any]], acceleration: Any) -> list[dict[str, Any]]:
    """Per relation the part of its edges that carries messages: those of the train split that a step does not ask for.

    A step asks for at most ``edge_sample_size`` pairs and ``supervision_fraction`` of a relation, and masks them; the
    reverse relation's questions mask the same edges, so that both count.
    """
    rows = []
    for relation in relations:
        edges, train = int(relation["edges"]), int(relation["split"]["train"])
        if not edges:
            continue
        asked = min(acceleration.edge_sample_size / max(train, 1), acceleration.supervision_fraction)
        name = f"{relation['source']} | {relation['name']} | {relation['target']}"
        rows.append({"relation": name, "edges": edges, "share": train / edges * (1 - asked) ** 2})
    return rows
