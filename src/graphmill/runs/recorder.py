"""Turns what the engine does into files (metrics.jsonl, logs, TensorBoard) and messages."""

from __future__ import annotations

import statistics
import time
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from itertools import accumulate
from typing import Any

from graphmill.runs.messages import COMPILING, Message, Outlet, Throttle, progress_line
from graphmill.training.memory import process_memory
from graphmill.training.metrics_log import EventWriter
from graphmill.training.run_directory import RunDirectory
from graphmill.training.run_state import TrainingListener, TrainState


@dataclass
class RunListener(TrainingListener):
    """The engine's listener for a run directory. ``phase_steps``: steps per epoch in each phase. ``epochs``: as in the
    settings. ``watch`` gets the record of each epoch as it ends, and may raise to end the training."""

    run: RunDirectory
    outlets: Sequence[Outlet]
    _: KW_ONLY
    epochs: int
    phase_steps: Sequence[int]
    every_seconds: float
    watch: Callable[[dict[str, Any]], None] = lambda record: None

    def __post_init__(self) -> None:
        self.steps_per_epoch = sum(self.phase_steps)
        self.throttle = Throttle(self.every_seconds)
        self.step_seconds: list[list[float]] = [[] for _ in self.phase_steps]
        """Seconds of the steps of each phase, without its first step in this process and without steps that compiled
        kernels."""
        self.last_step: float | None = None
        self._begun: set[int] = set()  # phases whose first step is done
        self._compiled = self._compiling_said = False
        self._to_come = 0  # steps of the current group (read together) that are still to be reported
        self._share: float | None = None  # seconds of each step in this group
        self.last_health: dict[str, float] = {}
        self.last_valid: dict[str, float] = {}
        self.split = "valid"
        self.tensorboard: EventWriter | None = None

    def attach_tensorboard(self, first_step: int) -> None:
        """Write event files from now on. TensorBoard ignores earlier files from ``first_step`` on."""
        self.close()
        self.tensorboard = EventWriter(self.run.tensorboard, purge_step=first_step)

    def close(self) -> None:
        """Close the event file."""
        if self.tensorboard is not None:
            self.tensorboard.close()
            self.tensorboard = None

    def on_step(self, state: TrainState, losses: dict[str, float], rate: float, together: int = 1) -> None:
        """Record the step and its time, and send a progress message now and then. Steps read together share their time
        equally.

        The first step of a phase in this process and steps that compile kernels are not typical, so they are not timed.
        """
        now = time.monotonic()
        if not self._to_come:
            self._share = None if self.last_step is None or self._compiled else (now - self.last_step) / together
            self._to_come, self._compiled = together, False
        self._to_come -= 1
        phase = bisect_right(list(accumulate(self.phase_steps)), (state.steps - 1) % self.steps_per_epoch)
        timed = self.step_seconds[phase]
        if self._share is not None and phase in self._begun and len(timed) < 10_000:
            timed.append(self._share)
        self._begun.add(phase)
        self.last_step = now
        self.run.metrics.append("step", state.epoch, state.steps, {"losses": losses, "learning_rate": rate})
        if any(self.step_seconds) and self.throttle.due():
            self._send_progress(state.epoch, state.steps % self.steps_per_epoch, losses, {})

    def on_epoch(self, record: dict[str, Any]) -> None:
        """Write the epoch's record to the logs and the trace, and send a progress message now and then."""
        epoch, rest = record["epoch"], {k: v for k, v in record.items() if k not in ("epoch", "steps")}
        self.run.metrics.append("epoch", epoch, record["steps"], rest)
        displayed = progress_line({**record, "valid": {}})
        self.run.log("train").info(f"epoch {epoch}/{self.epochs}  {displayed}  lr: {record['learning_rate']:.3g}")
        self.last_health = record.get("health", self.last_health)
        self.last_valid = record.get("valid", self.last_valid)
        self.split = record.get("split", "valid") if "valid" in record else self.split
        if "valid" in record:
            displayed = "  ".join(
                f"{name}: {value:.6f}" for name, value in (record["valid"] | record["health"]).items()
            )
            where = "" if self.split == "valid" else f" ({self.split} split)"
            self.run.log("val").info(f"epoch {epoch}{where}  {displayed}")
        if self.tensorboard is not None:
            groups = {"loss": record["losses"], self.split: record.get("valid", {}), "health": record.get("health", {})}
            curves = {f"{group}/{name}": value for group, values in groups.items() for name, value in values.items()}
            curves |= {"training/learning_rate": record["learning_rate"], "training/seconds": record["seconds"]}
            self.tensorboard.scalars(curves, record["steps"])
        if self.throttle.due() or record["epoch"] >= self.epochs:
            self._send_progress(record["epoch"], 0, record["losses"], record["per_second"])
        # The time of evaluation, saving and their compilation does not count as a step's time.
        self.last_step, self._compiled = time.monotonic(), False
        self.watch(record)

    def on_note(self, text: str) -> None:
        """Write the text to the log and send it to all outlets."""
        self.run.log("train").warning(text)
        self.send({"kind": "note", "text": text})

    def on_compiling(self) -> None:
        """Called before a kernel is compiled. It is reported once, and the step's time does not count."""
        self._compiled = True
        if not self._compiling_said:
            self._compiling_said = True
            self.run.log("train").info(COMPILING)
            self.send({"kind": "note", "text": COMPILING})

    def on_rewind(self, epoch: int, step: int) -> None:
        """Cut the trace back to this step, so that it equals that of an uninterrupted run."""
        self.last_step = None
        self.run.metrics.truncate_after(epoch, step)
        if self.tensorboard is not None:
            self.attach_tensorboard(max(step, 0))

    def send(self, message: Message) -> None:
        """Send the message to all outlets."""
        for outlet in self.outlets:
            outlet.send(message)

    def estimate(self) -> dict[str, float]:
        """Estimated seconds of an epoch (from the median step of each phase), of its mean step, and of the whole run;
        {} before any step is timed."""
        if not (medians := {phase: statistics.median(s) for phase, s in enumerate(self.step_seconds) if s}):
            return {}
        typical = statistics.mean(medians.values())  # for a phase before its second step
        epoch = sum(steps * medians.get(phase, typical) for phase, steps in enumerate(self.phase_steps))
        step = epoch / self.steps_per_epoch
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
                "phases": len(self.phase_steps),
                "losses": losses,
                "per_second": per_second,
                "seconds_left": max(left, 0) * estimate.get("seconds_per_step", 0.0),
                "estimate": estimate,
                "memory_bytes": process_memory(),
                "valid": self.last_valid,
                "split": self.split,
                "health": self.last_health,
            }
        )
