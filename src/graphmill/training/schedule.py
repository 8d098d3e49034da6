"""The learning rate as a function of the number of applied updates: warm-up, then decay to its lowest."""

from __future__ import annotations

import math

from graphmill.training.settings import TrainingSettings

LOWEST = 0.01
"""Lowest rate of the decays cosine and linear, as a fraction of the peak rate."""
DECAY_RATE, DECAY_STEPS = 0.98, 1000
"""The exponential decay: the factor, and the steps per factor."""


def batch_scale(rule: str, batch: int, base: int) -> float:
    """Factor on the learning rate for k = batch / base: 1, √k (for Adam, arXiv 2205.10287) or k (for SGD)."""
    k = batch / base
    return {"none": 1.0, "sqrt": math.sqrt(k), "linear": k}[rule]


def learning_rate(settings: TrainingSettings, update: int, decay_updates: int, scale: float = 1.0) -> float:
    """Learning rate of update number ``update`` (from 0).

    Warm-up W: peak · (update + 1) / W while update < W. Then, with t = update − W and T = decay_updates − W: cosine
    lowest + (1 − lowest) · ½(1 + cos(π · min(t / T, 1))); linear  1 − (1 − lowest) · min(t / T, 1); exponential
    0.98^(t / 1000). After T the rate stays at its lowest, so that a run can be continued.
    """
    peak = settings.learning_rate * scale
    warmup = settings.warmup_steps
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
