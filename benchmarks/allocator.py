"""Which allocator environment makes training fast on Linux, and what it costs in memory.

``python -m benchmarks.allocator [--json]`` runs loops with big temporaries under each candidate environment, in turn,
each in a fresh process (the environment is read once, at the start). ``graphmill.training.allocator`` holds the choice.

Workloads, forward and backward, single precision, one thread:

* messages: gather rows by edge, weigh them, add them up by destination; what a graph layer does
* scores: a batch against every entity, softmax over them; what 1-N scoring and recommenders do
* ragged: messages over a different number of edges each step; what sampled batches do, and what fragments a heap

The figure is processor time a step, kernel included: what is measured is page faults, and other processes disturb it
less than they do wall time.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from typing import Any

from benchmarks.card import ROOT, Row, row, typical, write
from graphmill.training.allocator import KEEP_HEAP, VARIABLES

HUGE_PAGES = {"THP_MEM_ALLOC_ENABLE": "1"}
STEPS = {"messages": 8, "scores": 20, "ragged": 10}
CANDIDATES: dict[str, dict[str, str]] = {
    "stock": {},
    "huge_pages": HUGE_PAGES,
    "keep_heap": KEEP_HEAP,
    "keep_heap+huge_pages": KEEP_HEAP | HUGE_PAGES,
}


def _step(workload: str, number: int, state: dict[str, Any]) -> None:
    import torch
    from torch.nn import functional as F

    if not state:
        torch.manual_seed(0)
        state["table"] = torch.randn(20_000, 128, requires_grad=True)
        state["weight"] = torch.randn(128, 128, requires_grad=True)
        state["edges"] = torch.randint(0, 20_000, (2, 200_000))
    table, weight = state["table"], state["weight"]
    if workload == "scores":
        start = number * 256 % 16_000
        queries = torch.tanh(table[start : start + 256] @ weight)
        loss = F.cross_entropy(queries @ table.T, torch.arange(256))
    else:
        count = 200_000 if workload == "messages" else 50_000 + number * 7919 % 150_000
        source, target = state["edges"][:, :count]
        messages = F.leaky_relu((table @ weight)[source]) * torch.sigmoid(table[target])
        loss = torch.zeros_like(table).index_add(0, target, messages).square().mean()
    loss.backward()
    table.grad = weight.grad = None


def measure(workload: str, steps: int) -> dict[str, float]:
    """One loop in this process: median processor seconds a step, the kernel's part, peak bytes above the imports."""
    import torch

    from graphmill.training.memory import peak_memory, process_memory, reset_peak

    torch.set_num_threads(1)
    baseline = process_memory()
    reset_peak()
    state: dict[str, Any] = {}
    for number in range(3):  # the heap grows to its size, code is loaded
        _step(workload, number, state)
    before, times = os.times(), []
    for number in range(3, 3 + steps):
        started = time.process_time()
        _step(workload, number, state)
        times.append(time.process_time() - started)
    after = os.times()
    kernel, user = after.system - before.system, after.user - before.user
    return {
        "step_seconds": statistics.median(times),
        "kernel_part": kernel / max(kernel + user, 1e-9),
        "peak_bytes": float(peak_memory() - baseline),
    }


def in_fresh_process(workload: str, steps: int, environment: dict[str, str]) -> dict[str, float]:
    """:func:`measure` under ``environment``, and nothing else that steers the allocator."""
    clean = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    code = f"import json; from benchmarks.allocator import measure; print(json.dumps(measure({workload!r}, {steps})))"
    done = subprocess.run(
        [sys.executable, "-c", code], env=clean | environment, cwd=ROOT, capture_output=True, text=True, check=True
    )
    return dict(json.loads(done.stdout))


def compare(rounds: int) -> list[Row]:
    """Each candidate against the stock allocator, workload by workload."""
    rows = []
    for workload, steps in STEPS.items():
        found: dict[str, list[dict[str, float]]] = {name: [] for name in CANDIDATES}
        for _ in range(rounds):
            for name, environment in CANDIDATES.items():
                found[name].append(in_fresh_process(workload, steps, environment))
        for name in list(CANDIDATES)[1:]:
            for metric, unit in (("step_seconds", "s"), ("peak_bytes", "bytes")):
                ours, note = typical(found[name], metric)
                theirs, theirs_note = typical(found["stock"], metric)
                kernel = [typical(runs, "kernel_part")[0] for runs in (found[name], found["stock"])]
                note += f"; stock {theirs_note}; part of the time in the kernel {kernel[0]:.2f}, stock {kernel[1]:.2f}"
                rows.append(
                    row(f"{workload}, {name}", metric, unit, ours, rival="stock glibc", theirs=theirs, note=note)
                )
    return rows


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true", help="write benchmarks/results/allocator.json")
    chosen = parser.parse_args()
    rows = compare(chosen.rounds)
    for r in rows:
        print(f"{r.workload:32} {r.metric:13} {r.ours:>11.4g} {r.unit:5} stock {r.theirs:>11.4g}, ratio {r.ratio:.2f}")
    if chosen.json:
        print(
            f"wrote {write('allocator', rows, f'python -m benchmarks.allocator --json --rounds {chosen.rounds}').name}"
        )


if __name__ == "__main__":
    main()
