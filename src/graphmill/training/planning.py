"""Predicts the memory and time of a training from a recipe's counts and this machine's rates.

A recipe's ``cost`` module counts what one step holds and computes (:class:`Cost`). This module turns the counts into
bytes and seconds. ``runs/planning.py`` chooses the batching and the rungs.
"""

from __future__ import annotations

import timeit
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from graphmill.training.allocator import Heap

BASE_BYTES = 400 << 20
"""Memory of a process that has imported torch, numba and graphmill, before it loads data (Linux, CPU build of torch)."""
HEAP_FACTORS: dict[Heap, tuple[float, float]] = {
    "kept": (1.13, 2.0), "stock": (1.03, 1.4), "returned": (1.03, 1.03), "other": (1.03, 1.03),
}  # fmt: skip
"""Ratio of resident memory to memory in use, by mode of the heap (``training/allocator.py``); fragmentation makes it
larger than 1. The first figure is for steps of equal sizes, the second for steps of different sizes (sampled batching)."""
MOMENTS = {"adamw": 2, "adam": 2, "adagrad": 1}
"""Size of the optimizer state as a multiple of the weights."""
OPTIMIZER_PASSES = {"adamw": 7, "adam": 7, "adagrad": 5}
"""Reads and writes per weight in one update: of the weight, gradient and moments, and for the norm that clipping needs."""


RANKING_BATCH = 256 << 20
"""Largest size in bytes of the scores of one batch of queries (evaluation/ranking/links.py)."""


def ranking_bytes(queries: float, candidates: float) -> int:
    """Peak bytes of a ranking: the scores of its largest batch, and half as much to compare them."""
    return int(1.5 * min(queries * candidates * 4, RANKING_BATCH))


@dataclass(frozen=True)
class Cost:
    """The cost of one process's share of a training, from counts alone.

    ``weights``: bytes of the parameters. ``held``: bytes of the graph, the features and the sampler's tables. ``step``:
    peak bytes of a step without weights, gradients, moments and ``held``. ``gradients``: bytes of gradients at that
    moment. ``evaluation``: peak bytes of an evaluation or export without weights, moments and ``held``. ``flop``:
    operations of a step's matrix products, backward pass included. ``low_flop``: the part of them in half precision.
    ``moved``: bytes that all other operations read and write. ``calls``: number of small operations, each with a fixed
    cost. ``ragged``: sizes differ from step to step.
    """

    weights: int
    held: int
    step: int
    gradients: int
    evaluation: int
    flop: float
    moved: float
    calls: float
    low_flop: float = 0.0
    ragged: bool = False


@dataclass(frozen=True)
class Machine:
    """Rates of this machine for a process with the given number of threads."""

    flop_per_second: float
    low_flop_per_second: float
    bytes_per_second: float
    seconds_per_call: float


@dataclass(frozen=True)
class Estimate:
    """Predicted peak memory in bytes, in total and by part, and seconds of one optimizer step."""

    peak: int
    parts: dict[str, int]
    seconds: float = 0.0


def peak_memory_of(
    cost: Cost, optimizer: str, *, heap: Heap = "stock", device: str = "cpu"
) -> tuple[int, dict[str, int]]:
    """Peak memory in bytes, and its parts.

    On the CPU this is the resident memory of the process. On an accelerator it is the memory of the device alone.
    """
    moments = cost.weights * MOMENTS[optimizer]
    even, ragged = HEAP_FACTORS[heap] if device == "cpu" else (1.0, 1.0)
    phases = {
        "step": (cost.gradients + cost.step, ragged if cost.ragged else even),
        "evaluation": (cost.evaluation, even),
    }
    name = max(phases, key=lambda phase: phases[phase][0] * phases[phase][1])
    phase, factor = phases[name]
    parts = {"weights and optimizer": cost.weights + moments, "graph and sampler": cost.held, name: phase}
    if device == "cpu":
        parts |= {"allocator": int(phase * (factor - 1.0)), "libraries": BASE_BYTES}
    return sum(parts.values()), parts


def sharded_bytes(ranks: int, nodes: int, widths: Sequence[int]) -> int:
    """Bytes that a rank sends in a step when layers of these widths are sharded by rows (ADR 2).

    Each layer gathers the features of all nodes and scatters their gradients."""
    return sum(int(2 * (ranks - 1) / ranks * nodes * width * 4) for width in widths)


def sharded_cost(cost: Cost, ranks: int, nodes: int, widths: Sequence[int]) -> Cost:
    """One rank's cost in full-graph training that is sharded by rows.

    It has its share of all that is stored per node or edge. It also gathers the features of all nodes and their
    gradient for the widest layer."""
    gathered = 2 * nodes * max(widths, default=0) * 4
    return replace(
        cost,
        weights=-(-cost.weights // ranks),
        held=-(-cost.held // ranks),
        step=-(-cost.step // ranks) + gathered,
        gradients=-(-cost.gradients // ranks),
        evaluation=-(-cost.evaluation // ranks) + gathered // 2,
        flop=cost.flop / ranks,
        low_flop=cost.low_flop / ranks,
        moved=cost.moved / ranks,
    )


def step_seconds(cost: Cost, optimizer: str, machine: Machine) -> float:
    """Seconds of one optimizer step: matrix products at the arithmetic rate, all else at the rate of the memory."""
    update = cost.weights * OPTIMIZER_PASSES[optimizer]
    products = (cost.flop - cost.low_flop) / machine.flop_per_second + cost.low_flop / machine.low_flop_per_second
    return products + (cost.moved + update) / machine.bytes_per_second + cost.calls * machine.seconds_per_call


def probe_machine(device: Any, precision: str = "fp32") -> Machine:
    """Measure this machine's rates in about half a second: a product of a layer's shape, a gather of rows, a small call.

    It takes the best of several trials, so that other programs affect the result little.
    """
    import torch

    from graphmill.kernels.products import product

    def best(work: Any, repeats: int) -> float:
        def whole() -> None:
            work()
            _wait(device)

        return min(timeit.repeat(whole, number=1, repeat=repeats))

    rows, inner, columns = 2048, 256, 768
    flop = 2.0 * rows * inner * columns
    low = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(precision, torch.float32)
    rates = []
    for dtype in (torch.float32, low):
        sizes = ((rows, inner), (inner, columns), (rows, columns))
        x, w, out = (torch.randn(*size, device=device, dtype=dtype) for size in sizes)
        rates.append(flop / best(lambda x=x, w=w, out=out: product(x, w, out=out), 15))
    table = torch.ones(1 << 16, inner, device=device)
    order = torch.randperm(len(table), device=device)
    other = torch.empty_like(table)
    moved = 2 * table.numel() * 4 / best(lambda: torch.index_select(table, 0, order, out=other), 8)
    small = torch.ones(64, device=device)
    call = best(lambda: [small.add_(0.0) for _ in range(100)], 5) / 100
    return Machine(rates[0], rates[1], moved, call)


def _wait(device: Any) -> None:
    import torch

    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device.type == "mps":
        torch.mps.synchronize()
