"""The listener that the engine informs during training, and the record of an epoch."""

from __future__ import annotations

from typing import Any

from graphmill.training.contract import System
from graphmill.training.memory import process_memory
from graphmill.training.run_state import TrainState


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
