"""The learning rate as a function of the number of applied updates: warm-up, then decay to its lowest."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from graphmill.training.settings import TrainingSettings

SHORT = 16
"""Digits of a fingerprint in names."""
RESTARTS = ("cosine", "linear")
"""Shapes of the decay that end at the lowest rate. When ``epochs`` is raised, they begin again."""
WARMUP_SHARE = 0.1
"""Largest share of a later schedule's updates that is its warm-up."""


@dataclass(frozen=True)
class Schedule:
    """One warm-up and decay of a run: it begins after ``epoch`` epochs and ``updates`` (by phase) and takes ``epochs``.

    A run has one. It gets another one whenever ``training.epochs`` is raised and the last one has ended.
    """

    epochs: int
    epoch: int = 0
    updates: Mapping[str, int] = field(default_factory=dict)

    @property
    def end(self) -> int:
        """The number of epochs that are done when the rate reaches its lowest."""
        return self.epoch + self.epochs

    def rate(self, settings: TrainingSettings, phase: str, update: int, steps: int, scale: float) -> float:
        """Learning rate of a phase's update number ``update`` of the run. ``steps``: the phase's updates in an epoch."""
        total, first = self.epochs * steps, self.updates.get(phase, 0)
        warmup = min(settings.warmup_steps, int(WARMUP_SHARE * total)) if self.epoch else settings.warmup_steps
        return learning_rate(settings, update - first, total, scale, warmup)


def named(fingerprint: str, schedules: Sequence[Schedule]) -> str:
    """A run's fingerprint with the epochs of its schedules, if it has several: ``<hash>:5+5`` is not a fresh ten epochs."""
    return fingerprint if len(schedules) < 2 else f"{fingerprint}:{'+'.join(str(part.epochs) for part in schedules)}"


def shortened(fingerprint: str) -> str:
    """The first :data:`SHORT` digits of a fingerprint, and the epochs of its schedules, if it has several."""
    digits, _, schedules = fingerprint.partition(":")
    return digits[:SHORT] + (f":{schedules}" if schedules else "")


LOWEST = 0.01
"""Lowest rate of the decays cosine and linear, as a fraction of the peak rate."""
DECAY_RATE, DECAY_STEPS = 0.98, 1000
"""The exponential decay: the factor, and the steps per factor."""


def batch_scale(rule: str, batch: int, base: int) -> float:
    """Factor on the learning rate for k = batch / base: 1, √k (for Adam, arXiv 2205.10287) or k (for SGD)."""
    k = batch / base
    return {"none": 1.0, "sqrt": math.sqrt(k), "linear": k}[rule]


def learning_rate(
    settings: TrainingSettings, update: int, decay_updates: int, scale: float = 1.0, warmup: int | None = None
) -> float:
    """Learning rate of update number ``update`` (from 0). ``warmup`` W: by default the setting.

    Warm-up W: peak · (update + 1) / W while update < W. Then, with t = update − W and T = decay_updates − W: cosine
    lowest + (1 − lowest) · ½(1 + cos(π · min(t / T, 1))); linear  1 − (1 − lowest) · min(t / T, 1); exponential
    0.98^(t / 1000). After T the rate stays at its lowest.
    """
    peak = settings.learning_rate * scale
    warmup = settings.warmup_steps if warmup is None else warmup
    if update < warmup:
        return peak * (update + 1) / warmup
    t = update - warmup
    progress = min(t / max(decay_updates - warmup, 1), 1.0)
    lowest = LOWEST
    if settings.lr_decay == "cosine":
        return peak * (lowest + (1.0 - lowest) * 0.5 * (1.0 + math.cos(math.pi * progress)))
    if settings.lr_decay == "linear":
        return peak * (1.0 - (1.0 - lowest) * progress)
    if settings.lr_decay == "exponential":
        return peak * DECAY_RATE ** (t / DECAY_STEPS)
    return peak
