"""Trains from settings to a finished run directory: lock, resume or reuse, fit, best weights, final metrics."""

from __future__ import annotations

import math
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch

from graphmill.errors import SettingsError
from graphmill.graph.graph_location import commit_of, stored_path
from graphmill.graph.typed_graph import TypedGraph
from graphmill.runs.champion import champion_folder
from graphmill.runs.export import passed_over
from graphmill.runs.fallback import KEY, failure_of, fell_back_before, on_the_cpu, require_fallback
from graphmill.runs.messages import Message, Outlet, watch_compiling
from graphmill.runs.parts import seconds_of_parts, train_parts
from graphmill.runs.planning import Plan, open_graph, plan_run
from graphmill.runs.recorder import RunListener
from graphmill.runs.resolve import Job, fingerprint, resolve, run_root
from graphmill.runs.start_or_resume import choose_start, evaluated_otherwise, longer
from graphmill.runs.tracker import mirrored, require_tracker
from graphmill.runs.warm_start import CHAMPION, ROWS_FILE, WarmStart, read_champion, read_warm_start
from graphmill.systems import registry
from graphmill.training.allocator import heaps, return_large_blocks
from graphmill.training.checkpoint import CheckpointStore
from graphmill.training.contract import StepSizes, System
from graphmill.training.device import configure_torch
from graphmill.training.engine import Engine
from graphmill.training.machine import require_processes
from graphmill.training.memory import device_memory, peak_memory
from graphmill.training.processes import Ranks, join
from graphmill.training.run_directory import RunDirectory, prune_runs
from graphmill.training.run_files import RUN_FORMAT
from graphmill.training.schedule import SHORT, named, shortened
from graphmill.training.signals import StopRequest
from graphmill.verified_files import describe_file
from graphmill.version import __version__

SPLITS = ("valid", "test")
PROGRESS_SECONDS = 5.0
KEEP_RUNS = 5
"""Number of run directories of a model that are kept; older ones are removed."""
Watch = Callable[[dict[str, Any]], None]


@dataclass
class Prepared:
    """A resolved job with its graph, system and run directory."""

    job: Job
    graph: TypedGraph
    system: System
    fingerprint: str
    run: RunDirectory
    warm_start: WarmStart | None
    plan: Plan
    left: str = ""
    """The device that failed, if the run fell back to the CPU."""
    note: str = ""
    """A sentence for the report."""


def prepare(
    values: Mapping[str, Any], where: str, *, root: str = "", agree: Callable[[Plan], Plan] = lambda plan: plan
) -> Prepared:
    """Resolve settings, open the graph, fit the run to memory, build the system, name the run.

    ``agree``: makes several processes use the plan of the first one.

    Raises:
        SettingsError, InputError, ResourceError: the message says what is wrong; nothing has been written.
    """
    job = resolve(values, where)
    settings = job.settings
    require_processes(settings.acceleration.processes, where)
    require_tracker(settings.tracker)
    graph = open_graph(job, where)
    plan = agree(plan_run(job, graph, where))
    # The plan of another process may not be possible, or not be wanted, on this machine.
    if plan.option.heap == "returned" and "returned" in heaps():
        return_large_blocks()
    job = replace(job, batching=plan.batching, notes=[*job.notes, f"memory: {plan.reason}"])
    warm_start = None
    if settings.training.init_from == CHAMPION:
        live = champion_folder(run_root(settings, root))
        warm_start = read_champion(live) if live else None
        if live is None:
            job = replace(job, notes=[*job.notes, "init_from: champion: nothing is live yet, so this starts fresh"])
    elif settings.training.init_from:
        warm_start = read_warm_start(settings.training.init_from)
    system = registry.create(settings.system, graph, settings, job.batching)
    init = warm_start.identity if warm_start else ""
    if not settings.training.epochs:
        if warm_start is None:
            raise SettingsError(f"{where}: training.epochs: 0 (embed only): nothing is live yet; train a first version")
        registry.require_folds_in(settings.system)
        warm_start.nodes = frozenset(graph.node_table()["id"].to_pylist())
        init += ", embed only"
    digest = fingerprint(job, graph.content_hash, system.algorithm_version, init)
    run = RunDirectory(run_root(settings, root) / digest[:SHORT])
    return Prepared(job, graph, system, digest, run, warm_start, plan)


def train(
    values: Mapping[str, Any],
    where: str,
    *,
    root: str = "",
    outlets: Sequence[Outlet] = (),
    stop: StopRequest | None = None,
    splits: Sequence[str] = SPLITS,
    note: str = "",
    watch: Watch = lambda record: None,
) -> Message:
    """Train, resume, or reuse a finished run; returns the ``result`` message.

    ``splits``: the splits of the final metrics; a trial of a search leaves out the test split. ``note``: a sentence for
    the run's report. ``watch`` gets the record of each epoch as it ends, and may raise to end the training.

    Raises:
        StoppedError: a stop was requested; the checkpoint is saved.
        GraphmillError: any other failure with a message for the user.
    """
    wanted = values.get("acceleration")
    wanted = wanted if isinstance(wanted, Mapping) else {}
    ranks = join(str(wanted.get("device", "auto")))
    try:
        prepared = prepare(values, where, root=root, agree=ranks.broadcast)
        prepared.note = note
        if prepared.job.settings.acceleration.sharding == "rows" and ranks.world == 1:
            raise SettingsError(
                f"{where}: acceleration.sharding: rows divides the tables over several processes, and this training has "
                "one; set acceleration.processes to 2 or more, or sharding: none"
            )
        may_fall_back = prepared.job.settings.acceleration.device == "auto"
        why = fell_back_before(prepared.job, prepared.run) if may_fall_back and ranks.world == 1 else ""
        if not why:
            try:
                with prepared.run.lock() if ranks.main else nullcontext():
                    return _fit(prepared, ranks, outlets if ranks.main else [], stop, splits, watch)
            except Exception as error:
                why = failure_of(prepared.job.device.type, error)
                if not why or not may_fall_back:
                    raise
                # One of several processes does not fall back: the others would wait on their devices.
                require_fallback(prepared.job, ranks.world, why)
                why = f"{prepared.job.device.type} failed in the middle of the run ({why}); fell back to the CPU"
        # Once only: if it fails on the CPU too, the device is not the cause.
        other = prepare(on_the_cpu(values, prepared.job), where, root=root)
        job = replace(other.job, device_reason=why, notes=[f"device: {why}", *other.job.notes[1:]])
        with other.run.lock():
            other = replace(other, job=job, left=prepared.job.device.type)
            return _fit(other, ranks, outlets, stop, splits, watch)
    finally:
        ranks.close()


def _fit(
    prepared: Prepared,
    ranks: Ranks,
    outlets: Sequence[Outlet],
    stop: StopRequest | None,
    splits: Sequence[str],
    watch: Watch,
) -> Message:
    job, run, system = prepared.job, prepared.run, prepared.system
    settings, acceleration = job.settings, job.settings.acceleration
    threads = configure_torch(job.device, ranks.local_world)
    store = CheckpointStore(run.checkpoints, keep_influence=acceleration.keep_influence)
    steps = [phase.steps_per_epoch for phase in system.phases]
    how: dict[str, Any] = {"every_seconds": PROGRESS_SECONDS, "watch": watch}
    listener = RunListener(run, outlets, epochs=settings.training.epochs, phase_steps=steps, **how)
    start = ranks.broadcast(
        choose_start(run, store, settings, prepared.fingerprint, listener.on_note) if ranks.main else "fresh"
    )
    about = {
        "run_dir": str(run.path),
        "system": system.name,
        "fingerprint": prepared.fingerprint,
        "device": job.device.type,
        "device_reason": job.device_reason,
        "epochs": settings.training.epochs,
    }
    if start == "reuse":
        if not ranks.main:
            return {}
        report: Message = run.read_json("report.json")
        listener.send({"kind": "started", "reused": True, "resumed_from_epoch": report["epochs_done"], **about})
        said = [text for text in (longer(report["epochs_done"], settings), evaluated_otherwise(run, settings)) if text]
        for text in said:
            listener.on_note(text)
        return {**report, "reused": True, "run_dir": str(run.path), "notes": [*report["notes"], *said]}
    began = time.time()
    if ranks.main:
        _write_head(prepared, ranks, threads)
    parts = {}
    if start == "fresh":
        listener.send({"kind": "started", "reused": False, "resumed_from_epoch": 0, **about})
        parts = train_parts(prepared, train, outlets, stop)
    engine = Engine(
        system,
        settings.training,
        acceleration,
        settings.evaluation,
        device=job.device,
        precision=job.precision,
        step_sizes=prepared.plan.option.step_sizes(),
        listener=listener,
        ranks=ranks,
        store=store,
        stop=stop,
        nonfinite_dir=run.path / "nonfinite",
        initialise=prepared.warm_start.applied_to(system) if prepared.warm_start else None,
        before_save=run.metrics.sync,
    )
    system.take_parts(engine.model, parts)
    notes = list(job.notes)
    if acceleration.gradient_checkpointing and not system.can_checkpoint:
        notes.append(
            f"acceleration.gradient_checkpointing changes nothing: this {system.name} has no layers to recompute"
        )
    if start == "resume":
        notes += engine.resume("last")
        if sentence := longer(engine.state.epoch, settings):
            notes.append(sentence)
    if ranks.main:
        store.check_writable(_checkpoint_bytes(engine))
        listener.attach_tensorboard(engine.state.steps)
        if start == "fresh":
            listener.on_rewind(0, -1)
    if start == "resume":
        listener.send({"kind": "started", "reused": False, "resumed_from_epoch": engine.state.epoch, **about})
    if start == "fresh":
        summary = prepared.warm_start.summary if prepared.warm_start else ""
        engine.state.notes += [text for text in (prepared.note, summary) if text]
        notes += engine.state.notes
    for note in notes if ranks.main else ():
        listener.on_note(note)
    report = _fit_to_the_end(prepared, engine, listener, began, splits)
    ranks.barrier()
    return report


def _fit_to_the_end(
    prepared: Prepared, engine: Engine, listener: RunListener, began: float, splits: Sequence[str]
) -> Message:
    """Train, evaluate, and write the report in the first process, while the tracker is kept up to date."""
    run, device, ranks = prepared.run, prepared.job.device, engine.ranks
    with mirrored(run.path, prepared.job.settings.tracker, listener.on_note) if ranks.main else nullcontext():
        try:
            with watch_compiling(listener.on_compiling) if ranks.main else nullcontext():
                fit = engine.fit()
                metrics, epoch = _final_figures(engine, listener, run, splits)
        finally:
            listener.close()
        # All processes wait until the report is written: torchrun would end the others if one exited early.
        if not ranks.main:
            return {}
        state, estimate, epochs = fit.state, listener.estimate(), run.metrics.read("epoch")
        fingerprint = named(prepared.fingerprint, state.schedules)
        report: Message = {
            "kind": "result",
            "run_dir": str(run.path),
            "fingerprint": fingerprint,
            "data_version": f"{shortened(fingerprint)}-{state.steps}",
            "reason": fit.reason,
            "epochs_done": state.epoch,
            "steps_done": state.steps,
            "best_epoch": state.best_epoch,
            "best_metric": state.best_metric,
            "selected_on": prepared.job.settings.evaluation.selected_on if state.best_metric is not None else "",
            "exported_epoch": epoch,
            "metrics": metrics,
            "health": state.last_health,
            "final_losses": dict(epochs[-1]["losses"]) if epochs else {},
            "skips": state.skips,
            "seconds": state.seconds + seconds_of_parts(run.path),
            "seconds_per_step": estimate.get("seconds_per_step", 0.0),
            "seconds_per_epoch": estimate.get("seconds_per_epoch", 0.0),
            "peak_memory_bytes": peak_memory(),
            "peak_device_memory_bytes": device_memory(device).peak,
            "planned_memory_bytes": prepared.plan.option.estimate.peak,
            "bytes_reduced": engine.ranks.bytes_reduced,
            "bytes_exchanged": engine.ranks.bytes_exchanged,
            "compile": asdict(fit.compile) if fit.compile else {},
            "shrunk": engine.step_sizes.history,
            "notes": state.notes,
            "device": prepared.job.device.type,
            "precision": state.precision,
            "reused": False,
            "wall_seconds": time.time() - began,
        }
        run.write_json("report.json", report)
        if tuple(splits) == SPLITS:  # a search keeps the runs of all its trials, because its leaderboard names them
            prune_runs(run.path.parent, KEEP_RUNS, {run.path.name})
        return report


def _write_head(prepared: Prepared, ranks: Ranks, threads: int) -> None:
    """Write settings.json, manifest.json and the node ids: they identify the run and allow repeating it, whatever
    happens next."""
    job, run = prepared.job, prepared.run
    run.remove("report.json")
    run.write_json("settings.json", job.settings.model_dump())
    run.write_json(ROWS_FILE, prepared.system.row_keys(prepared.system.build(StepSizes())))
    run.write_json(
        "manifest.json",
        {
            "format": "graphmill-run",
            "version": RUN_FORMAT,
            "fingerprint": prepared.fingerprint,
            "system": prepared.system.name,
            "algorithm_version": prepared.system.algorithm_version,
            "data": {
                "path": stored_path(prepared.graph.path, run.path),
                "content_hash": prepared.graph.content_hash,
            },
            "files": {name: describe_file(run.path / name) for name in ("settings.json", ROWS_FILE)},
            "resolved": {
                "device": str(job.device),
                "device_reason": job.device_reason,
                **({KEY: prepared.left} if prepared.left else {}),
                "preset": job.preset,
                "preset_reason": job.preset_reason,
                "precision": job.precision,
                "batching": job.batching,
                "threads": threads,
                "processes": ranks.world,
            },
            "plan": prepared.plan.to_json(),
            "versions": {
                "graphmill": __version__,
                "torch": torch.__version__,
                "python": platform.python_version(),
                "platform": platform.platform(),
                **commit_of(run.path.parent),
            },
        },
    )


def _final_figures(
    engine: Engine, listener: RunListener, run: RunDirectory, splits: Sequence[str]
) -> tuple[dict[str, float], int]:
    """The metrics of the best epoch (or of the last, if none was chosen) on each split, over all ranks; and that epoch."""
    state, epoch = engine.state, 0
    loaded = None
    if engine.closed_form:
        epoch = state.epoch  # the only one, and in memory
    else:
        loaded = engine.load_weights("last" if state.best_metric is None else "best")
    if loaded is not None:
        epoch = loaded.epoch
        for note in passed_over(run, loaded, None if state.best_metric is None else state.best_epoch):
            state.notes.append(note)
            listener.on_note(note)
    loaded = None  # it holds the moments as well
    engine.model.eval()
    metrics: dict[str, float] = {}
    for split in splits:
        result = engine.final_metrics.get(split) or engine.evaluated(split, final=True, poll=lambda: None)
        metrics |= {f"{split}_{name}": value for name, value in result.items()}
    return metrics, epoch


def _checkpoint_bytes(engine: Engine) -> int:
    shards = engine.system.shards
    weights = 0
    for name, t in engine.model.state_dict().items():
        rows = shards.bounds[name][-1] if shards and name in shards.bounds else None
        weights += (t.numel() if rows is None else rows * math.prod(t.shape[1:])) * t.element_size()
    return 3 * weights  # weights and two Adam moments
