"""Steps whose losses are still on the accelerator. The host reads several of them at once, some steps later.

A read makes the host wait for the device, and then the device waits for the host's next step. Therefore, on CUDA, the
device itself clips a step and skips it if it is not finite, and the host learns of it a few steps later. This does not
apply where the next step depends on the result: fp16 (its scale does), several
processes (they agree after every step), and Adagrad with weight decay, which cannot skip by itself.
"""

from __future__ import annotations

from dataclasses import dataclass

from graphmill.training.contract import Phase, StepBatch
from graphmill.training.step import Gradient

READ_EVERY = 8


@dataclass(frozen=True)
class Done:
    """A step that has been computed: its place, its number in the run, its learning rate and its gradient."""

    phase: Phase
    batch: StepBatch
    epoch: int
    index: int
    steps: int
    rate: float
    gradient: Gradient
