"""The state of a run, its conversion to a checkpoint and back, the listener that the engine informs, and the record of an
epoch.

Batches and dropout masks are pure functions of the position. A checkpoint therefore needs only the position, the
weights, the optimizers, the scaler and the running sums. It needs no random state, sampler state or partial gradient.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from graphmill.errors import InputError
from graphmill.training.contract import System
from graphmill.training.memory import process_memory
from graphmill.training.optimizers import PhaseOptimizer
from graphmill.training.schedule import Schedule
from graphmill.training.solved import SolvedArrays


@dataclass
class TrainState:
    """The position and history of a run: completed epochs (``epoch``), ``phase`` and step ``index`` in the next one,
    and more.

    ``sums`` and ``counts``: losses and applied steps of the current epoch, by phase. ``coefficients``: the weight of each
    loss in the total. ``step_sizes``: the sizes asked for, and those that the ladder (``ladder.py``) reached.
    """

    epoch: int = 0
    phase: int = 0
    index: int = 0
    steps: int = 0
    updates: dict[str, int] = field(default_factory=dict)
    schedules: list[Schedule] = field(default_factory=list)
    precision: str = "fp32"
    scaler: dict[str, Any] = field(default_factory=dict)
    sums: dict[str, float] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    coefficients: dict[str, float] = field(default_factory=dict)
    last_loss: float = float("nan")
    skips: int = 0
    evaluated_epoch: int = 0
    best_metric: float | None = None
    best_epoch: int = 0
    last_metrics: dict[str, float] = field(default_factory=dict)
    last_health: dict[str, float] = field(default_factory=dict)
    epoch_seconds: float = 0.0
    seconds: float = 0.0
    notes: list[str] = field(default_factory=list)
    step_sizes: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> TrainState:
        """The state from its plain values; names that a newer minor version added are ignored."""
        known = {name: values[name] for name in cls.__dataclass_fields__ if name in values}
        return cls(**{**known, "schedules": schedules_of(values)})


def schedules_of(values: dict[str, Any]) -> list[Schedule]:
    """The schedules in the plain values of a state."""
    return [Schedule(**part) for part in values["schedules"]]


def pack(model: nn.Module, optimizers: dict[str, PhaseOptimizer]) -> dict[str, Tensor]:
    """Weights, persistent buffers and optimizer moments by name."""
    tensors = {f"model.{name}": tensor.detach() for name, tensor in model.state_dict().items()}
    for phase, optimizer in optimizers.items():
        tensors.update(optimizer.tensors(f"optimizer.{phase}"))
    return tensors


def unpack(tensors: dict[str, Tensor], model: nn.Module, optimizers: dict[str, PhaseOptimizer], path: str) -> None:
    """Restore :func:`pack` in place.

    Raises:
        InputError: names or shapes do not fit the model; the message lists the first.
    """
    load_model(tensors, model, path)
    for phase, optimizer in optimizers.items():
        optimizer.load(f"optimizer.{phase}", tensors)


def load_model(tensors: dict[str, Tensor], model: nn.Module, path: str) -> None:
    """Restore only the weights and buffers, for export and evaluation."""
    current = model.state_dict()
    stored = {name.removeprefix("model."): t for name, t in tensors.items() if name.startswith("model.")}
    if set(current) != set(stored):
        odd = sorted(set(current) ^ set(stored))[:3]
        raise InputError(
            f"{path} does not fit this model: {', '.join(odd)} on one side only; train with acceleration.resume: never"
        )
    if isinstance(model, SolvedArrays):
        model.put(stored)
        return
    with torch.no_grad():
        for name, tensor in current.items():
            if tensor.shape != stored[name].shape:
                raise InputError(
                    f"{path} does not fit this model: '{name}' is {tuple(stored[name].shape)} there and "
                    f"{tuple(tensor.shape)} here; train with acceleration.resume: never"
                )
            tensor.copy_(stored[name])


def record_metric(state: TrainState, value: float) -> bool:
    """Record the selection metric of ``state.epoch``. True if it is the best so far."""
    better = state.best_metric is None or value > state.best_metric
    if better:
        state.best_metric, state.best_epoch = value, state.epoch
    return better


def out_of_patience(state: TrainState, patience_epochs: int) -> bool:
    """Whether the last evaluation came at least ``patience_epochs`` epochs after the best one and was no better.

    Patience counts epochs, so that rare evaluations do not prolong a run. It is decided only at an evaluation, so that
    epochs without one cannot end a run.
    """
    if patience_epochs <= 0 or state.best_metric is None:
        return False
    return state.evaluated_epoch - state.best_epoch >= patience_epochs


def unselected(split: str, patience_epochs: int) -> str:
    """The note for a run whose ``split`` is empty, so that no epoch can be chosen."""
    patience = f"training.patience_epochs: {patience_epochs} never ends the run, " if patience_epochs else ""
    other = "" if split == "test" else "; to have one chosen, build the graph with a validation split"
    return (
        f"nothing is held out in the {split} split, so no epoch is chosen: {patience}all training.epochs are trained and "
        f"the last one counts{other}"
    )


class TrainingListener:
    """Receives the events of a training, on rank 0 only. This one does nothing."""

    def on_step(self, state: TrainState, losses: dict[str, float], rate: float, together: int) -> None:
        """Called after every attempted step. ``together``: number of steps whose losses were read at once with this one."""

    def on_epoch(self, record: dict[str, Any]) -> None:
        """Called after every epoch, with its evaluation if there was one."""

    def on_note(self, text: str) -> None:
        """Called with a note for the user."""

    def on_rewind(self, epoch: int, step: int) -> None:
        """Called when the run resumes from a checkpoint. Steps after it will be reported again."""


def epoch_record(system: System, state: TrainState, rate: float) -> dict[str, Any]:
    """The record of the epoch that has just ended: mean losses over its applied steps and their weights in the total, rate,
    throughput, memory.

    With several phases, the names of losses begin with the phase. The engine adds the metrics of the evaluation.
    """
    losses: dict[str, float] = {}
    coefficients: dict[str, float] = {}
    units: dict[str, float] = {}
    for phase in system.phases:
        prefix = f"{phase.name}/"
        for key, value in state.sums.items():
            if key.startswith(prefix):
                name = key.removeprefix(prefix) if len(system.phases) == 1 else key
                losses[name] = value / state.counts[phase.name]
                if key in state.coefficients:
                    coefficients[name] = state.coefficients[key]
        if not phase.closed_form:  # one solution has no rate
            unit, amount = system.units_per_step(phase)
            units[unit] = units.get(unit, 0.0) + amount * phase.steps_per_epoch
    seconds = max(state.epoch_seconds, 1e-9)
    return {
        "epoch": state.epoch,
        "steps": state.steps,
        "losses": losses,
        "coefficients": coefficients,
        "learning_rate": rate,
        "precision": state.precision,
        "skips": state.skips,
        "seconds": state.epoch_seconds,
        "per_second": {unit: amount / seconds for unit, amount in units.items()},
        "memory_bytes": process_memory(),
    }
