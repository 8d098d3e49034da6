"""Decides whether a training starts, resumes or is already done, and reports how a finished run differs from the settings.

The newest checkpoint decides, because it can be verified by itself. ``report.json`` only says that a training has
ended. If it is damaged or disagrees, the end of the training is repeated from the checkpoint.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from typing import Any, Literal

from graphmill.errors import InputError
from graphmill.export.manifests import SCORER
from graphmill.runs.resolve import stored_settings
from graphmill.training.checkpoint import CheckpointMissingError, CheckpointStore
from graphmill.training.run_directory import RunDirectory
from graphmill.training.run_state import TrainState, out_of_patience
from graphmill.training.schedule import named

Start = Literal["fresh", "resume", "reuse"]


def choose_start(
    run: RunDirectory, store: CheckpointStore, settings: Any, fingerprint: str, note: Callable[[str], None]
) -> Start:
    """Decide how to start. Before a fresh start, remove the earlier run's files.

    Raises:
        InputError: ``resume: require``, and there is no checkpoint.
    """
    resume = settings.acceleration.resume
    if resume == "never":
        _clear(run, store)
        return "fresh"
    if store.list():
        return "reuse" if _is_done(run, store, settings, fingerprint, note) else "resume"
    if resume == "require":
        raise InputError(f"acceleration.resume: require, but {run.path} has no checkpoint; auto starts afresh")
    return "fresh"


def longer(completed: int, settings: Any) -> str:
    """A note if a run has already been trained for more epochs than the settings ask for: it cannot be made shorter."""
    requested = settings.training.epochs
    if completed <= requested:
        return ""
    return (
        f"training.epochs is {requested}, but this run has been trained for {completed} epochs, and its vectors are of "
        f"those; set acceleration.resume: never to train {requested} from the start"
    )


def evaluated_otherwise(run: RunDirectory, settings: Any) -> str:
    """A note if the epoch or the metrics of a finished run are from other evaluation settings than those given now."""
    before = stored_settings(run).model_dump(mode="json")["evaluation"]
    now = settings.model_dump(mode="json")["evaluation"]
    changed = [f"{name} {before[name]} (now {now[name]})" for name in now if before[name] != now[name]]
    if not changed:
        return ""
    return (
        f"this run is done, and its best epoch and metrics are from evaluation.{', '.join(changed)}; "
        "set acceleration.resume: never to train it again"
    )


def _is_done(
    run: RunDirectory, store: CheckpointStore, settings: Any, fingerprint: str, note: Callable[[str], None]
) -> bool:
    if not (run.path / "report.json").exists():
        return False
    try:
        report = run.read_json("report.json")
        for name in ("manifest.json", "settings.json", "parameter_rows.json"):
            run.read_json(name)  # the run is useless without these
    except InputError as error:
        note(f"{error}; that is done now")
        return False
    try:
        loaded = store.load("last", stream=lambda name: True)  # only its state is needed
    except CheckpointMissingError:
        return False  # resuming reports why
    state = TrainState.from_json(loaded.snapshot.state)
    reported = report["fingerprint"], report["epochs_done"], report["steps_done"]
    if reported != (named(fingerprint, state.schedules), state.epoch, state.steps):
        note(
            f"report.json has epoch {report['epochs_done']} and step {report['steps_done']}, but the last checkpoint "
            f"has epoch {state.epoch} and step {state.steps}: the run resumes from the checkpoint"
        )
        return False
    return state.epoch >= settings.training.epochs or out_of_patience(state, settings.training.patience_epochs)


def _clear(run: RunDirectory, store: CheckpointStore) -> None:
    store.discard_after(-1)
    for name in ("report.json", "metrics.jsonl", "tracker.json"):
        run.remove(name)
    for folder in (run.embeddings, run.path / SCORER, run.tensorboard, run.path / "nonfinite"):
        shutil.rmtree(folder, ignore_errors=True)
    run.create()
