"""Adds up a training's memory from its system's table of parts.

A system's ``memory_parts`` lists what a training holds (:class:`Part`). This module adds the parts up for the sizes of a
step. ``runs/planning.py`` chooses the batching and the sizes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from graphmill.training.allocator import Heap
from graphmill.training.contract import StepSizes

LIBRARIES_BYTES = 620 << 20
"""Memory of a process that trains a tiny graph: torch, numba and what it compiles, pyarrow (Linux, CPU build of torch)."""
HEAP_FACTORS: dict[Heap, tuple[float, float]] = {
    "kept": (1.13, 2.0), "stock": (1.03, 1.4), "returned": (1.03, 1.03), "other": (1.03, 1.03),
}  # fmt: skip
"""Ratio of resident memory to memory in use, by mode of the heap (``training/allocator.py``); fragmentation makes it
larger than 1. The first figure is for parts of one size in all steps, the second for parts that differ in size."""
MOMENTS = {"adamw": 2, "adam": 2, "adagrad": 1}
"""Size of the optimizer state as a multiple of the weights."""
RANKING_BATCH = 256 << 20
"""Largest size in bytes of the scores of one batch of queries (evaluation/ranking/links.py)."""

When = Literal["weights", "always", "kept", "loss", "backward", "evaluation"]
_REMEDIES: dict[When, str] = {
    "weights": "lower model.embedding_dim, or leave nodes out of the graph",
    "always": "leave nodes or edges out of the graph",
    "kept": "lower acceleration.batch_size or model.embedding_dim",
    "loss": "lower acceleration.batch_size or model.embedding_dim",
    "backward": "lower acceleration.batch_size or model.embedding_dim",
    "evaluation": "lower model.embedding_dim",
}


@dataclass(frozen=True)
class Setup:
    """How a training is computed. ``device``: a ``torch.device``."""

    batching: str
    precision: str
    device: Any

    @property
    def on_cpu(self) -> bool:
        """Whether it is computed on the CPU."""
        return bool(self.device.type == "cpu")


@dataclass(frozen=True)
class Part:
    """One part of a training's memory in one process: ``count`` elements of ``size`` bytes.

    ``when`` it is in memory: "weights": always, with the optimizer's moments, and in a step with their gradient;
    "always"; "kept": from the forward pass of a step to its backward pass; "loss": in the loss of one micro-batch
    (``count`` is for the whole batch); "backward": in the backward pass of the encoding; "evaluation".

    ``at_most``: the loss works in blocks of so many elements. ``recomputed``: elements with gradient checkpointing;
    None: as many. ``uneven``: sizes differ from step to step. ``remedy``: what makes the part smaller.
    """

    name: str
    when: When
    count: float
    size: int = 4
    at_most: float = math.inf
    recomputed: float | None = None
    uneven: bool = False
    remedy: str = ""

    def bytes(self, step_sizes: StepSizes) -> float:
        """Bytes with the sizes of a step that ``step_sizes`` gives."""
        count = self.recomputed if step_sizes.checkpointing and self.recomputed is not None else self.count
        if self.when == "loss":
            count = min(count / max(step_sizes.micro_batches, 1), self.at_most)
        return count * self.size

    def advice(self) -> str:
        """What to change if this part is the largest."""
        return self.remedy or _REMEDIES[self.when]


@dataclass(frozen=True)
class Estimate:
    """Predicted peak memory in bytes, in total and by part; and the remedy for the largest part."""

    peak: int
    parts: dict[str, int]
    remedy: str = ""


def ranking_part(queries: float, candidates: float) -> Part:
    """A ranking: the scores of its largest batch, and half as much to compare them."""
    return Part("ranking", "evaluation", 1.5 * min(queries * candidates, RANKING_BATCH / 4))


def estimate_of(
    parts: Sequence[Part], optimizer: str, step_sizes: StepSizes, *, heap: Heap = "stock", device: str = "cpu"
) -> Estimate:
    """The peak of a training that has these parts.

    On the CPU this is the resident memory of the process. On an accelerator it is the memory of the device alone.
    """
    even, uneven = HEAP_FACTORS[heap] if device == "cpu" else (1.0, 1.0)

    def at(*when: When) -> list[tuple[str, float, float, str]]:
        """Name, bytes, the allocator's bytes beside them, and remedy of each part that is in memory then."""
        chosen = [part for part in parts if part.when in when]
        sizes = [part.bytes(step_sizes) for part in chosen]
        return [
            (part.name, size, size * ((uneven if part.uneven else even) - 1), part.advice())
            for part, size in zip(chosen, sizes, strict=True)
        ]

    weights = at("weights")
    gradients = [(f"gradients of {name}", size, more, advice) for name, size, more, advice in weights]
    moments = [
        at("evaluation"),
        [*gradients, *at("kept", "loss")],
        [*gradients, *at("kept", "backward")],
    ]
    lasting = [(name, size * (1 + MOMENTS[optimizer]), 0.0, advice) for name, size, _, advice in weights]
    lasting += [(name, size, 0.0, advice) for name, size, _, advice in at("always")]
    peak = lasting + max(moments, key=lambda moment: sum(size + more for _, size, more, _ in moment))
    if device == "cpu":
        peak.append(("allocator", sum(more for _, _, more, _ in peak), 0.0, ""))
        libraries = f"torch and the other libraries take {LIBRARIES_BYTES >> 20} MiB of that whatever the settings"
        peak.append(("libraries", LIBRARIES_BYTES, 0.0, libraries))
    sizes: dict[str, int] = {}
    for name, size, _, _ in peak:
        sizes[name] = sizes.get(name, 0) + int(size)
    remedy = max((each for each in peak if each[0] != "allocator"), key=lambda each: each[1])[3]
    return Estimate(sum(sizes.values()), sizes, remedy)
