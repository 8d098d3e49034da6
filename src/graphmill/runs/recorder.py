"""Turns what the engine does into files (metrics.jsonl, history.json, logs, TensorBoard) and messages."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from graphmill.runs.messages import Message, Outlet, Throttle, progress_line
from graphmill.training.run_directory import RunDirectory
from graphmill.training.run_state import TrainState
from graphmill.training.tensorboard import EventWriter


class RunListener:
    """The engine's listener of a real run. ``steps_per_epoch`` over all phases; ``epochs`` as asked for."""

    def __init__(
        self, run: RunDirectory, outlets: Sequence[Outlet], *, epochs: int, steps_per_epoch: int, every_seconds: float
    ) -> None:
        self.run = run
        self.outlets = outlets
        self.epochs = epochs
        self.steps_per_epoch = steps_per_epoch
        self.throttle = Throttle(every_seconds)
        self.step_seconds: list[float] = []
        self.last_step: float | None = None
        self._to_come = 0  # steps of those reported together that are not yet
        self._share: float | None = None  # what each took
        self.last_health: dict[str, float] = {}
        self.last_valid: dict[str, float] = {}
        self.split = "valid"
        self.tensorboard: EventWriter | None = None

    def attach_tensorboard(self, directory: Path, first_step: int) -> None:
        """Write event files from now on; what earlier files say from ``first_step`` on is dropped by TensorBoard."""
        self.close()
        self.directory = directory
        self.tensorboard = EventWriter(directory, purge_step=first_step)

    def close(self) -> None:
        """Close the event file."""
        if self.tensorboard is not None:
            self.tensorboard.close()
            self.tensorboard = None

    def on_step(self, state: TrainState, losses: dict[str, float], rate: float, together: int = 1) -> None:
        """Time the step, of several together each alike; a message now and then."""
        now = time.monotonic()
        if not self._to_come:
            self._share = None if self.last_step is None else (now - self.last_step) / together
            self._to_come = together
        self._to_come -= 1
        if self._share is not None and len(self.step_seconds) < 10_000:
            self.step_seconds.append(self._share)
        self.last_step = now
        self.run.metrics.append("step", state.epoch, state.steps, {"losses": losses, "learning_rate": rate})
        if self.step_seconds and self.throttle.due():
            in_epoch = state.steps % self.steps_per_epoch
            self._send_progress(state.epoch, in_epoch, losses, {})

    def on_epoch(self, record: dict[str, Any]) -> None:
        """One line in every log."""
        epoch, rest = record["epoch"], {k: v for k, v in record.items() if k not in ("epoch", "steps")}
        self.run.metrics.append("epoch", epoch, record["steps"], rest)
        shown = progress_line({**record, "valid": {}})
        self.run.log("train").info(f"epoch {epoch}/{self.epochs}  {shown}  lr: {record['learning_rate']:.3g}")
        self.last_health = record.get("health", self.last_health)
        self.last_valid = record.get("valid", self.last_valid)
        self.split = record.get("split", "valid") if "valid" in record else self.split
        if "valid" in record:
            figures = "  ".join(
                f"{name}: {value:.6f}" for name, value in {**record["valid"], **record["health"]}.items()
            )
            where = "" if self.split == "valid" else f" ({self.split} split)"
            self.run.log("val").info(f"epoch {epoch}{where}  {figures}")
        if self.tensorboard is not None:
            groups = {"loss": record["losses"], self.split: record.get("valid", {}), "health": record.get("health", {})}
            curves = {f"{group}/{name}": value for group, values in groups.items() for name, value in values.items()}
            curves |= {"training/learning_rate": record["learning_rate"], "training/seconds": record["seconds"]}
            self.tensorboard.scalars(curves, record["steps"])
        if self.throttle.due() or record["epoch"] >= self.epochs:
            self._send_progress(record["epoch"], 0, record["losses"], record["per_second"])
        self.last_step = None  # evaluation and saving do not count as a step's time

    def on_note(self, text: str) -> None:
        """To the log and to whoever listens."""
        self.run.log("train").warning(text)
        self.send({"kind": "note", "text": text})

    def on_rewind(self, epoch: int, step: int) -> None:
        """Cut the trace back, so that it equals the one of a run that was never interrupted."""
        self.run.metrics.truncate_after(epoch, step)
        if self.tensorboard is not None:
            self.attach_tensorboard(self.directory, max(step, 0))

    def send(self, message: Message) -> None:
        """To all outlets."""
        for outlet in self.outlets:
            outlet.send(message)

    def estimate(self) -> dict[str, float]:
        """Median seconds per step so far, and what follows for an epoch and the whole run."""
        if not self.step_seconds:
            return {}
        step = statistics.median(self.step_seconds)
        epoch = step * self.steps_per_epoch
        return {"seconds_per_step": step, "seconds_per_epoch": epoch, "seconds_total": epoch * self.epochs}

    def _send_progress(self, epoch: int, step: int, losses: dict[str, float], per_second: dict[str, float]) -> None:
        estimate = self.estimate()
        left = (self.epochs - epoch) * self.steps_per_epoch - step
        self.send(
            {
                "kind": "progress",
                "epoch": epoch,
                "epochs": self.epochs,
                "step": step,
                "losses": losses,
                "per_second": per_second,
                "seconds_left": max(left, 0) * estimate.get("seconds_per_step", 0.0),
                "estimate": estimate,
                "memory_bytes": _memory(),
                "valid": self.last_valid,
                "split": self.split,
                "health": self.last_health,
            }
        )


def _memory() -> int:
    from graphmill.training.memory import process_memory

    return process_memory()
