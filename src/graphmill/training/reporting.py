"""What the engine tells while it trains, and to whom."""

from __future__ import annotations

from typing import Any, Protocol

from graphmill.training.contract import Recipe
from graphmill.training.memory import process_memory
from graphmill.training.run_state import TrainState


class TrainingListener(Protocol):
    """Who is told what happens. Called on rank 0 only, once a step."""

    def on_step(self, state: TrainState, losses: dict[str, float], rate: float, together: int) -> None:
        """After every attempted step; ``together``: how many follow each other whose losses were read at once."""

    def on_epoch(self, record: dict[str, Any]) -> None:
        """After every epoch, with its evaluation if there was one."""

    def on_note(self, text: str) -> None:
        """Something that a person should read."""

    def on_rewind(self, epoch: int, step: int) -> None:
        """The run goes on from a checkpoint: what was reported after it will be reported again."""


def epoch_record(recipe: Recipe, state: TrainState, rate: float) -> dict[str, Any]:
    """The figures of the epoch that has just ended: mean losses over its applied steps, rate, throughput, memory.

    Loss names carry their phase where there are several. The evaluation's figures are added by the engine.
    """
    losses: dict[str, float] = {}
    units: dict[str, float] = {}
    for phase in recipe.phases:
        prefix = f"{phase.name}/"
        for key, value in state.sums.items():
            if key.startswith(prefix):
                name = key.removeprefix(prefix) if len(recipe.phases) == 1 else key
                losses[name] = value / state.counts[phase.name]
        unit, amount = recipe.units_per_step(phase)
        units[unit] = units.get(unit, 0.0) + amount * phase.steps_per_epoch
    seconds = max(state.epoch_seconds, 1e-9)
    return {
        "epoch": state.epoch,
        "steps": state.steps,
        "losses": losses,
        "learning_rate": rate,
        "precision": state.precision,
        "skips": state.skips,
        "seconds": state.epoch_seconds,
        "per_second": {unit: amount / seconds for unit, amount in units.items()},
        "memory_bytes": process_memory(),
    }
