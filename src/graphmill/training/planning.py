"""What a training will take: memory and time from a recipe's own counts and this machine's rates.

A recipe's ``cost`` module says what one step holds and does (:class:`Cost`); here that becomes bytes and seconds. Which
batching and rungs to take is ``runs/planning.py``'s business.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from graphmill.training.allocator import Heap

BASE_BYTES = 400 << 20
"""A process that has imported torch, numba and this library, before any data (Linux, CPU build of torch)."""
HEAP_FACTORS: dict[Heap, tuple[float, float]] = {
    "kept": (1.13, 2.0), "stock": (1.03, 1.4), "returned": (1.03, 1.03), "other": (1.03, 1.03),
}  # fmt: skip
"""Resident memory over live memory by what becomes of freed blocks (``training/allocator.py``): holes that nothing fits
into. Where all steps have the same sizes, and where they differ (sampled batching)."""
MOMENTS = {"adamw": 2, "adam": 2, "adagrad": 1, "sgd": 1}
"""Optimizer state, in copies of the weights."""
OPTIMIZER_PASSES = {"adamw": 7, "adam": 7, "adagrad": 5, "sgd": 5}
"""Reads and writes of a weight in one update: weight, gradient and moments, with the norm that clipping needs."""


RANKING_BATCH = 256 << 20
"""Scores of one batch of queries, at most (evaluation/ranking/links.py)."""


def ranking_bytes(queries: float, candidates: float) -> int:
    """What a ranking holds: the scores of its largest batch, and half as much to compare them."""
    return int(1.5 * min(queries * candidates * 4, RANKING_BATCH))


@dataclass(frozen=True)
class Cost:
    """One process's share of a training, from counts alone.

    ``weights``: bytes of the parameters. ``held``: bytes of graph, features and tables of the sampler. ``step``: the most
    bytes that a step holds besides weights, gradients, moments and ``held``; ``gradients``: bytes of gradients at that
    moment. ``evaluation``: the most that an evaluation or an export holds besides weights, moments and ``held``.
    ``flop``: of a step's matrix products, backward included; ``low_flop``: those of them in half precision. ``moved``:
    bytes that the rest reads and writes. ``calls``: small operations, each with its fixed price. ``ragged``: sizes differ
    from step to step.
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
    """Rates of this machine, as a process with so many threads sees them."""

    flop_per_second: float
    low_flop_per_second: float
    bytes_per_second: float
    seconds_per_call: float


@dataclass(frozen=True)
class Estimate:
    """Predicted peak of the process (CPU) or of the device's memory, by part, and seconds of one optimizer step."""

    peak: int
    parts: dict[str, int]
    seconds: float = 0.0


def peak_memory_of(
    cost: Cost, optimizer: str, *, heap: Heap = "stock", device: str = "cpu"
) -> tuple[int, dict[str, int]]:
    """Bytes at the highest moment, and what they consist of.

    On the CPU it is the resident memory of the process; on an accelerator that of the device, without the process.
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
    if device != "cpu":
        return sum(parts.values()), parts
    parts["allocator"] = int(phase * (factor - 1.0))
    parts["libraries"] = BASE_BYTES
    return sum(parts.values()), parts


def sharded_bytes(ranks: int, nodes: int, widths: Sequence[int]) -> int:
    """Bytes that a rank sends in a step when layers of these widths are sharded by rows (ADR 2): each layer's features are
    gathered, and their gradients scattered."""
    return sum(int(2 * (ranks - 1) / ranks * nodes * width * 4) for width in widths)


def sharded_cost(cost: Cost, ranks: int, nodes: int, widths: Sequence[int]) -> Cost:
    """One rank's share of a full training that is sharded by rows: its part of everything that there is by node or edge,
    beside the widest layer's features of all nodes and their gradient, which it gathers."""
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
    """Seconds of one optimizer step: products at the machine's rate, the rest at that of its memory."""
    update = cost.weights * OPTIMIZER_PASSES[optimizer]
    products = (cost.flop - cost.low_flop) / machine.flop_per_second + cost.low_flop / machine.low_flop_per_second
    return products + (cost.moved + update) / machine.bytes_per_second + cost.calls * machine.seconds_per_call


def probe_machine(device: Any, precision: str = "fp32") -> Machine:
    """Measure this machine for about half a second: a product of a layer's shape, a gather of rows, a small call.

    The best of several: on a machine with others, about what it does alone.
    """
    import torch

    from graphmill.kernels.products import product

    def best(work: Any, repeats: int) -> float:
        found = float("inf")
        for _ in range(repeats):
            start = time.perf_counter()
            work()
            _wait(device)
            found = min(found, time.perf_counter() - start)
        return found

    rows, inner, columns = 2048, 256, 768
    flop = 2.0 * rows * inner * columns
    low = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(precision, torch.float32)
    rates = []
    for dtype in (torch.float32, low):
        x, w = (
            torch.randn(rows, inner, device=device, dtype=dtype),
            torch.randn(inner, columns, device=device, dtype=dtype),
        )
        out = torch.empty(rows, columns, device=device, dtype=dtype)
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
