"""What part of a step two processes spend adding up their gradients: ``python -m benchmarks.device.reduction [--json]``.

Overlapping the sums with the backward pass (in buckets, as DistributedDataParallel does) could save that part at most, and
of it only what is known before the pass has ended: the gradient of an embedding table, most of these models' bytes, is its
last. Processes wait for each other first, so that no one's lead counts as sending. gloo over loopback, one thread each.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks.parts import made_up_graphs
from benchmarks.parts.card import ROOT, Row, row, write
from graphmill.runs.resolve import merge, resolve
from graphmill.systems import registry
from graphmill.training.contract import StepSizes
from graphmill.training.optimizers import PhaseOptimizer
from graphmill.training.precision import Precision
from graphmill.training.processes import Ranks, join
from graphmill.training.step import compute_gradient

STEPS = 7
HGT = {"model": {"hidden_dim": 128, "embedding_dim": 128, "num_layers": 2}, "acceleration": {"batching": "full"}}
CONVE = {"model": {"embedding_dim": 100}, "acceleration": {"batch_size": 256}}
PAIRS = {"model": {"embedding_dim": 64}, "acceleration": {"batch_size": 2048}}
WORKLOADS: dict[str, tuple[str, dict[str, Any], str, tuple[int, ...]]] = {
    "HGT, softmax, two layers, full, 6,000 nodes, 16 relations": ("hgt", HGT, "typed", (6000, 40_000, 16)),
    "ConvE, 1-N, 5,000 entities": ("conve", CONVE, "triples", (5000, 40, 60_000)),
    "LightGCN, 12,000 users and items": ("lightgcn", PAIRS, "interactions", (8000, 4000, 150_000, 2000, 16)),
    "MF, 12,000 users and items": ("mf", PAIRS, "interactions", (8000, 4000, 150_000, 2000, 16)),
}


class _Timed(Ranks):
    """Ranks that note how long gradients take to be added up, once all have come."""

    seconds = 0.0

    def sum_(self, tensors: Sequence[Tensor]) -> None:
        self.barrier()
        begin = time.perf_counter()
        super().sum_(tensors)
        self.seconds += time.perf_counter() - begin


def rank(name: str, folder: Path) -> None:
    """Under torchrun: medians of a step and of its reductions, seconds, and the bytes; printed by rank 0."""
    torch.set_num_threads(1)
    joined = join("cpu")
    ranks = _Timed(**vars(joined))
    system_name, ours, kind, sizes = WORKLOADS[name]
    graph = getattr(made_up_graphs, kind)(folder / str(ranks.rank), *sizes)
    on = {"acceleration": {"device": "cpu", "precision": "fp32"}}
    job = resolve(merge({"system": system_name, "data": str(graph.path), "preset": "none", **ours}, on), "reduction")
    system = registry.create(system_name, graph, job.settings, job.batching)
    system.to(torch.device("cpu"))
    model = system.build(StepSizes()).train()
    phase = system.phases[0]
    optimizer = PhaseOptimizer(job.settings.training, system.parameter_groups(model, phase), torch.device("cpu"))
    whole, added, sent = [], [], []
    for number in range(STEPS):
        batch = system.step(phase, 0, number % phase.steps_per_epoch)
        ranks.barrier()
        ranks.seconds, bytes_before, begin = 0.0, ranks.bytes_reduced, time.perf_counter()
        options = {"step_sizes": StepSizes(), "precision": Precision("fp32", torch.device("cpu")), "ranks": ranks}
        gradient = compute_gradient(system, model, optimizer.parameters, batch, seed_parts=(0,), **options)  # type: ignore[arg-type]
        if gradient.finite:
            optimizer.step(1e-4)
        model.zero_grad()
        whole.append(time.perf_counter() - begin)
        added.append(ranks.seconds)
        sent.append(ranks.bytes_reduced - bytes_before)
    if ranks.main:
        medians = [statistics.median(values[2:]) for values in (whole, added, sent)]
        print(json.dumps(medians), flush=True)
    ranks.barrier()
    sys.stdout.flush()
    os._exit(0)


def main() -> None:
    """See the module's head."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="write benchmarks/results/reduction.json")
    parser.add_argument("--rank", default="", help="what the two processes run")
    parser.add_argument("--folder", type=Path)
    chosen = parser.parse_args()
    if chosen.rank:
        rank(chosen.rank, chosen.folder)
        return
    rows: list[Row] = []
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    for name in WORKLOADS:
        with tempfile.TemporaryDirectory() as folder:
            for number in range(2):
                (Path(folder) / str(number)).mkdir()
            finished = subprocess.run(
                [*command, "-m", "benchmarks.device.reduction", "--rank", name, "--folder", folder],
                capture_output=True, text=True, check=False, cwd=ROOT, env={**os.environ, "OMP_NUM_THREADS": "1"},
            )  # fmt: skip
        if finished.returncode:
            raise SystemExit(finished.stderr[-3000:])
        whole, added, sent = json.loads(finished.stdout.strip().splitlines()[-1])
        note = f"{sent / 1e6:.1f} MB a step, {added * 1e3:.1f} of {whole * 1e3:.0f} ms"
        rows.append(row(name, "share of a step that adds up gradients, 2 processes", "part", added / whole, note=note))
        print(f"{name}: {added / whole:.3f} ({note})")
    if chosen.json:
        print(f"wrote {write('reduction', rows, 'python -m benchmarks.device.reduction --json').name}")


if __name__ == "__main__":
    main()
