"""Steps whose losses are still on the accelerator: they are read some steps later, all at once.

Reading makes the host wait until the device has done all that it was given, and the device then waits for the host's next
step. So on CUDA a step is clipped, and left out where it is not finite, on the device itself, and the host learns of it a
few steps later. Not where what comes next depends on it: fp16, whose scale does; ``on_nonfinite: skip``, which counts;
several processes, which agree after every step anyway; and optimizers that have no fused kernel.
"""

from __future__ import annotations

from dataclasses import dataclass

from graphmill.training.contract import Phase, StepBatch
from graphmill.training.step import Gradient

READ_EVERY = 8


@dataclass(frozen=True)
class Done:
    """A step that has been computed: which, its number in the run, at which rate, and what its backward left."""

    phase: Phase
    batch: StepBatch
    epoch: int
    index: int
    steps: int
    rate: float
    gradient: Gradient
