"""The asset ``<dataset>/<model>_model``: a training in the worker process, its figures, and checks of its loss; its check
``verdict``, which the steps that rank and validate update; and for ``system: auto`` ``<dataset>/which_model``: all systems
that suit the graph are trained within a budget, and validation chooses one."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import dagster as dg

from graphmill.components.following import decide
from graphmill.components.plan import WHICH, ModelPlan, Reference
from graphmill.components.worker_asset import Job, Step, WorkerAsset
from graphmill.errors import SettingsError
from graphmill.orchestration.checks import Check, PreviousRun, SeverityName
from graphmill.orchestration.metadata import Picture, records, scalars
from graphmill.orchestration.page import run_pages, sparkline
from graphmill.orchestration.pipes import WorkerReport
from graphmill.promotion.versions import Versions
from graphmill.reports.training_curves import FEWEST_DRAWN, Curve, loss_curve, metric_curve, total_loss
from graphmill.reports.verdict import ModelVerdict, run_verdict
from graphmill.runs.messages import duration
from graphmill.systems.auto import FEWEST, FILE
from graphmill.training.machine import require_processes
from graphmill.training.metrics_log import MetricsLog

# The component, the upstream asset and the accelerator resource set these.
NOT_IN_LAUNCHPAD = ("system", "data", "preset", "acceleration.device")

VERDICT = Check(
    "verdict",
    "The whole model: it is better than the best simple way on held-out data, and its vectors are sound. If not: the "
    "sentence says what to do. Ranking, validation and drift update it.",
    updated_later=True,
)
DECIDED = Check(
    "queries_decide",
    f"The choice rests on {FEWEST} validation queries or more. If not: hold out more (graph.split.valid).",
)
FINITE = Check(
    "loss_finite",
    "Every epoch's loss is a finite number. If not: lower training.learning_rate, or set acceleration.precision: fp32.",
)
FALLING = Check(
    "loss_falling",
    "The last quarter of the epochs has a lower mean loss than the first. If not: train longer, or change the learning "
    "rate.",
)
MESSAGES = Check(
    "edges_carry_messages",
    "Enough of each relation's edges carry messages in a training step. If not: lower sampling.edge_sample_size.",
)
CHECKS = (VERDICT, FINITE, FALLING, MESSAGES)


def model_asset(plan: ModelPlan) -> WorkerAsset:
    """The training asset. Its value is a small reference to the run directory."""
    about = (
        f"Trains {plan.system}; the run's page shows live figures. Shift-click Materialize for other settings: a "
        "finished run is reused, and more epochs continue it."
    )
    if plan.preset != "none":
        reason = plan.preset_reason.removeprefix("auto: ")
        about += f" Its defaults are those of the preset `{plan.preset}` ({reason})."
    if plan.predicts:
        about = (
            "Trains the system that which_model has chosen, by the same settings: on the same graph, the chosen run is "
            "reused. Alone, it trains this system on a newer graph, and nothing is chosen anew."
        )
    return WorkerAsset(
        part="model",
        stage="training",
        inputs=("graph", WHICH) if plan.predicts else ("graph",),
        kinds={"pytorch", plan.system},
        description=about,
        settings=None if plan.predicts else plan.settings,
        hidden=NOT_IN_LAUNCHPAD,
        given=lambda inputs, accelerator: {"data": inputs["graph"]["path"], **accelerator.overrides()},
        checks=CHECKS,
        job=_job,
        page=_page,
        trains=True,
    )


def _job(step: Step) -> Job:
    """The training. Raises :class:`SettingsError` for settings with which it could not start, or would fail at its end."""
    settings, publish = step.settings, step.plan.publish
    if step.plan.predicts:
        chosen = {**step.inputs[WHICH]["settings"], "data": step.inputs["graph"]["path"]}
        return {"settings": chosen, "run_root": step.run_root}
    if not step.launcher.elsewhere:
        require_processes(settings.acceleration.processes, "the Launchpad")
    if publish and not settings.export.csv:
        raise SettingsError("'publish' in the defs.yaml copies the CSV, but export.csv is off: set export.csv: true")
    if publish and step.path(publish).is_dir():
        raise SettingsError(f"publish: {publish} is a folder; name the file to which the CSV is copied")
    step.processes = settings.acceleration.processes
    values = settings.model_dump()
    follow, versions = step.plan.follow, Versions(step.path(step.plan.versions_folder))
    way, reason = decide(follow, step.plan.system, versions, step.path(settings.data))
    step.followed = f"{way}: {reason}" if reason else ""
    if way != "fresh":
        values["training"] |= {"init_from": "champion", "epochs": follow.epochs if way == "warm_start" else 0}
    return {"settings": values, "run_root": step.run_root, "note": step.followed}


def _page(step: Step) -> dg.MaterializeResult[Reference]:
    report, result = step.report, step.report.result
    plan = step.plan = step.plan.of_run(str(result["run_dir"]))
    verdict = run_verdict(step.path(str(result["run_dir"])))
    epochs = MetricsLog(step.path(str(result["run_dir"])) / "metrics.jsonl").read("epoch")
    losses = [total_loss(record["losses"]) for record in epochs if record["losses"]]
    chosen = (f"valid_{plan.selection_metric}", f"test_{plan.selection_metric}")
    notes = [f"- {note}" for note in (*(result.get("notes") or ()), *(result.get("shrunk") or ()))]
    rest = {
        "run_dir": dg.MetadataValue.path(str(result["run_dir"])),
        "fingerprint": result["fingerprint"],
        "device": str(report.started.get("device", "")),
        "device_reason": str(report.started.get("device_reason", "")),
        "preset": plan.preset,
        "preset_reason": plan.preset_reason,
        "reused": bool(result.get("reused")),
        "launcher": step.launcher.kind,
        **({"follow": step.followed} if step.followed else {}),
        **({"notes": dg.MetadataValue.md("\n".join(notes))} if notes else {}),
        **({"system": plan.system} if plan.predicts else {}),
    }
    metadata = step.page(
        _summary(plan, losses, result, verdict),
        rest,
        plotted=("loss", *chosen, "epochs_done", "seconds", "seconds_per_step", "peak_memory_bytes"),
        others=_figures(report, losses),
        pictures=_pictures(plan, epochs, result),
    )
    value = {name: result[name] for name in ("run_dir", "fingerprint", "data_version")}
    return step.result(
        {**value, "graph": dict(step.inputs["graph"])},
        metadata,
        [verdict_result(step, verdict), *_check_results(step, losses)],
        str(result["data_version"]),
    )


def _summary(plan: ModelPlan, losses: Sequence[float], result: Mapping[str, Any], verdict: ModelVerdict) -> str:
    chosen, metrics = plan.selection_metric, result.get("metrics") or {}
    reached = [
        f"{chosen} {metrics[name]:.4f} on {split}"
        for name, split in ((f"valid_{chosen}", "validation"), (f"test_{chosen}", "the test"))
        if name in metrics
    ]
    begin = f"Trained in {duration(float(result.get('seconds') or 0.0))}"
    if result.get("reused"):
        begin = "An earlier run with these settings and data is reused"
    epochs = int(result.get("epochs_done") or 0)
    text = f"{begin}: {plan.system}, {epochs} epoch{'s' * (epochs != 1)}"
    if not epochs:
        text = f"Embedded only, from the live version: {plan.system}, nothing is trained"
    if result.get("best_epoch") and epochs > 1:
        text += f", the best is {result['best_epoch']}"
    text += f"; {', '.join(reached)}." if reached else "."
    end = f"\n\nWhether simple ways do better, {plan.name}_ranking finds out; the check `verdict` then says it."
    if verdict.word != "unranked":
        text, end = f"{verdict.text}\n\n{text}", ""
    if len(losses) < FEWEST_DRAWN:
        return f"{text} Loss {', '.join(f'{loss:.4g}' for loss in losses)}.{end}" if losses else text + end
    return f"{text}\n\nLoss {sparkline(losses)} {losses[-1]:.4g}{end}"


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


def _pictures(plan: ModelPlan, epochs: Sequence[Mapping[str, Any]], result: Mapping[str, Any]) -> dict[str, Picture]:
    folder, pictures = str(result["run_dir"]), {}
    if len(epochs) >= FEWEST_DRAWN:
        pictures["loss_curve"] = Picture(loss_curve(epochs), f"{folder}/losses.png", "loss")
    if sum(bool(record.get("valid")) for record in epochs) >= FEWEST_DRAWN:
        png = metric_curve(epochs, selection=plan.selection_metric)
        splits = {str(record.get("split", "valid")) for record in epochs if record.get("valid")}
        about = "validation metrics" if splits == {"valid"} else "metrics that chose the epoch"
        pictures["metric_curve"] = Picture(png, f"{folder}/metrics.png", about)
    return pictures


def _check_results(step: Step, losses: list[float]) -> list[dg.AssetCheckResult]:
    curve, bounds = Curve(losses), step.plan.checks
    wrong, drop = curve.first_nonfinite, curve.drop
    finite = f"the loss of epoch {wrong} is {losses[wrong - 1]}" if wrong else f"all {len(losses)} epochs"
    fell = "too few epochs to judge this" if math.isnan(drop) else f"the mean loss fell by {drop:.4g}"
    falling = {"fall of the mean loss": drop, "last loss": losses[-1] if losses else None}
    falling |= {"last loss of the run before": step.previous.figure("loss")}
    least = (step.report.result.get("health") or {}).get("message_coverage")
    messages, of_messages = "not measured: this system passes no messages", {}
    if least is not None:
        of_messages = {"least share of edges that carry messages": least, "bound": bounds.message_share_min}
        messages = (
            f"the relation with the least has {least:.0%} of its training edges, bound {bounds.message_share_min:.0%}; "
            "lower sampling.edge_sample_size to raise it"
        )
    return [
        step.check(FINITE, not wrong, finite, "error", {"epochs": f"{len(losses)}"}),
        step.check(FALLING, math.isnan(drop) or drop > 0, fell, metadata=scalars(falling)),
        step.check(
            MESSAGES, least is None or least >= bounds.message_share_min, messages, metadata=scalars(of_messages)
        ),
    ]


def which_model_asset(plan: ModelPlan) -> WorkerAsset:
    """The asset of the choice. Its value has the chosen system's settings."""
    return WorkerAsset(
        part=WHICH,
        stage="training",
        inputs=("graph",),
        kinds={"pytorch", plan.system},
        description=(
            "Trains all systems that suit the data within a budget of time, and chooses one by validation. The test split "
            f"is read for that one alone. The choice stays until the data, the settings or the budget change. Next: "
            f"{plan.name}_model takes the chosen run."
        ),
        settings=plan.settings,
        hidden=("system", "data", "acceleration.device"),
        given=lambda inputs, accelerator: {"data": inputs["graph"]["path"], **accelerator.overrides()},
        checks=(DECIDED,),
        job=lambda step: {"mode": "choose", "settings": step.settings.model_dump(), "run_root": step.run_root},
        page=_choice_page,
        trains=True,
    )


def _choice_page(step: Step) -> dg.MaterializeResult[Reference]:
    choice, result = step.read(f"{step.run_root}/{FILE}"), step.report.result
    metric, queries, run_dir = choice["metric"], int(choice["queries"]), str(result["run_dir"])
    names = ("settings", "seconds", "memory", "size", "state", "reason")
    systems = [
        {"system": each["system"], metric: each["figure"], "low": each["low"], "high": each["high"]}
        | {name: each[name] for name in names}
        | {"has": ", ".join(each["abilities"])}
        for each in choice["candidates"]
    ]
    chosen = next(each for each in choice["candidates"] if each["run"] == choice["run"])
    rest = {"system": choice["system"], "systems": records(systems), "run_dir": dg.MetadataValue.path(run_dir)}
    return step.result(
        {"system": choice["system"], "settings": step.read(f"{run_dir}/settings.json") | {"preset": "none"}},
        step.page(choice["sentence"], rest, plotted={metric: chosen["figure"], "queries": queries}),
        [step.check(DECIDED, queries >= FEWEST, f"{queries:,} validation queries", "warn")],
        str(result["data_version"]),
    )


def verdict_result(step: Step, verdict: ModelVerdict) -> dg.AssetCheckResult:
    """The check's result for the step's own asset: an error if the model is broken, else a warning."""
    severity: SeverityName = "error" if verdict.word == "broken" else "warn"
    return step.check(VERDICT, verdict.passed, verdict.text, severity, {"word": verdict.word})


def describe(step: Step) -> dict[str, Any]:
    """Write the run's card and report again, and update the model's check; returns metadata with the verdict.

    The check is updated only if the model's last training is of the same run.
    """
    verdict, model = run_verdict(step.path(step.run_dir)), step.plan.key("model")
    instance = step.context.instance
    if PreviousRun(instance, model).value("run_dir") == step.run_dir:
        result = verdict_result(step, verdict)
        instance.report_runless_asset_event(
            dg.AssetCheckEvaluation(
                asset_key=model,
                check_name=VERDICT.name,
                passed=result.passed,
                severity=result.severity,
                description=result.description,
                metadata=result.metadata,
            )
        )
    return {"verdict": dg.MetadataValue.md(verdict.text), **run_pages(step.plan.root, step.run_dir)}
