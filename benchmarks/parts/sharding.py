"""The measured parts of the cost model in ADR 2: ``python -m benchmarks.large sharding``.

Three figures of this machine: the rate of gloo's all-reduce over loopback and its latency (two processes), and the time
of HGT's propagation a million edges. The model puts them together; nothing of it is written by hand. Then memory and bytes
of whole trainings with one process and with two that divide the tables (``sharding_memory``); ``--bytes-alone`` measures
the bytes in some minutes.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from benchmarks.parts.card import Row, replace_rows, row
from benchmarks.parts.sharding_memory import build, measured, train
from graphmill.kernels.hgt.attention import Rows, hgt_attention
from graphmill.kernels.hgt.plan import MessageGraph, TypedEdges
from graphmill.training.processes import join

SIZES = (1 << 12, 1 << 18, 1 << 22, 1 << 24)  # bytes
EDGES, NODES, WIDTH, HEADS = 200_000, 20_000, 256, 8
#: The five types of the biomedical graph, two layers.
PRIMEKG = {"nodes": 83_866, "edges": 4_162_300, "layers": 2}


SYSTEMS = ("lightgcn", "kgat", "hgt")
"""Whose tables are divided and measured."""


@dataclass(frozen=True)
class Machine:
    """Latency (s) and rate (B/s) of an all-reduce; seconds an edge and layer, forward and backward."""

    latency: float
    rate: float
    edge: float


def all_reduce() -> None:
    """Under torchrun: seconds of an all-reduce of each size, printed by rank 0."""
    ranks = join("gloo")
    torch.set_num_threads(1)
    result = {}
    for size in SIZES:
        tensor = torch.ones(size // 4)
        times = []
        for _ in range(7):
            ranks.barrier()
            before = time.perf_counter()
            ranks.sum_([tensor])
            times.append(time.perf_counter() - before)
        result[size] = statistics.median(times)
    if ranks.main:
        print(json.dumps(result), flush=True)
    sys.stdout.flush()
    os._exit(0)


def propagation() -> float:
    """Seconds of one layer's attention, forward and backward, one thread."""
    torch.set_num_threads(1)
    rng = np.random.default_rng(0)
    dst = np.sort(rng.integers(0, NODES, EDGES)).astype(np.int32)
    edges = TypedEdges(0, 0, rng.integers(0, NODES, EDGES).astype(np.int32), dst, np.arange(EDGES, dtype=np.int32))
    graph = MessageGraph.build([NODES], [edges])
    rows = [torch.randn(NODES, WIDTH, requires_grad=True) for _ in range(3)]
    d = WIDTH // HEADS
    w_k, w_v = (torch.randn(1, HEADS, d, d, requires_grad=True) for _ in range(2))
    prior = torch.ones(1, HEADS, requires_grad=True)
    times = []
    for _ in range(6):
        before = time.perf_counter()
        out = hgt_attention(Rows(*rows), w_k, w_v, prior, graph)[0]
        assert out is not None
        out.sum().backward()
        times.append(time.perf_counter() - before)
    return statistics.median(times[1:])


@dataclass(frozen=True)
class Step:
    """Seconds of a step's propagation, and the bytes that a rank sends for it."""

    seconds: float
    sent: float


def replicated(machine: Machine, nodes: int, edges: int, layers: int, ranks: int) -> Step:
    """Every rank propagates all; the encoding's gradient is added up: a ring sends 2 (R − 1) / R of it."""
    sent = 2 * (ranks - 1) / ranks * nodes * WIDTH * 4
    return Step(layers * edges * machine.edge + machine.latency + sent / machine.rate, sent)


def by_rows(machine: Machine, nodes: int, edges: int, layers: int, ranks: int) -> Step:
    """A rank propagates the edges into its own nodes: per layer it gathers the features, and scatters their gradient."""
    sent = layers * 2 * (ranks - 1) / ranks * nodes * WIDTH * 4
    return Step(layers * (edges / ranks * machine.edge + 2 * machine.latency) + sent / machine.rate, sent)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="write benchmarks/results/sharding.json")
    parser.add_argument("--reduce", action="store_true", help="what the two processes run")
    parser.add_argument("--systems", nargs="*", default=list(SYSTEMS), help="whose memory is measured")
    parser.add_argument(
        "--scale", type=float, default=1.0, help="a part of PrimeKG's size, for a trial of this program"
    )
    parser.add_argument("--memory-alone", action="store_true", help="leave the other figures as they are")
    parser.add_argument("--bytes-alone", action="store_true", help="of the memory's trainings only the bytes of a step")
    parser.add_argument("--build", nargs=3, metavar=("SYSTEM", "FOLDER", "SCALE"), help="what a process does first")
    parser.add_argument("--train", nargs=3, metavar=("SYSTEM", "FOLDER", "OUT"), help="what each rank runs")
    chosen = parser.parse_args()
    if chosen.build:
        build(Path(chosen.build[1]), chosen.build[0], float(chosen.build[2]))
        return
    if chosen.train:
        train(Path(chosen.train[1]), chosen.train[0], Path(chosen.train[2]), steps_alone=chosen.bytes_alone)
        return
    if chosen.reduce:
        all_reduce()
        return
    figures = [] if chosen.memory_alone or chosen.bytes_alone else modelled()
    rows = [*figures, *measured(chosen.systems, chosen.scale, bytes_alone=chosen.bytes_alone)]
    for r in rows:
        comparison = f", {r.rival} {r.theirs:.4g} ({r.ratio:.2f}). {r.note}" if r.theirs else ""
        print(f"{r.workload}: {r.metric} {r.ours:.4g} {r.unit}{comparison}")
    if chosen.json:
        command = "python -m benchmarks.large sharding --json"
        new = {(r.workload, r.metric) for r in rows}
        print(f"wrote {replace_rows('sharding', rows, command, lambda old: (old.workload, old.metric) in new).name}")


def modelled() -> list[Row]:
    """This machine's figures, and what the model of ADR 2 makes of them."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    process = subprocess.run(
        [*command, "-m", "benchmarks.large", "sharding", "--reduce"], capture_output=True, text=True, check=True,
        cwd=Path(__file__).resolve().parents[2],
    )  # fmt: skip
    seconds = {int(size): value for size, value in json.loads(process.stdout.strip().splitlines()[-1]).items()}
    latency = seconds[SIZES[0]]
    # Two ranks: each sends 2 · (R − 1) / R = 1 times the payload.
    rate = (SIZES[-1] - SIZES[-2]) / (seconds[SIZES[-1]] - seconds[SIZES[-2]])
    here = Machine(latency, rate, propagation() / EDGES)
    rows: list[Row] = [
        row("gloo, 2 processes, loopback", "latency of an all-reduce", "ms", latency * 1e3),
        row("gloo, 2 processes, loopback", "rate", "MB/s", rate / 1e6),
        row(f"HGT attention, width {WIDTH}, {HEADS} heads", "a million edges, both ways", "s", here.edge * 1e6),
    ]
    for ranks in (2, 4, 8):
        all_of_it, part = (how(here, **PRIMEKG, ranks=ranks) for how in (replicated, by_rows))
        note = f"modelled; a rank sends {all_of_it.sent / 1e6:.0f} MB replicated, {part.sent / 1e6:.0f} MB by rows"
        what = f"PrimeKG, {ranks} ranks"
        rows.append(
            row(what, "step by rows", "s", part.seconds, rival="replicated", theirs=all_of_it.seconds, note=note)
        )
    return rows


if __name__ == "__main__":
    main()
