"""What the engine costs a step over a plain torch loop: ``python -m benchmarks.engine [--json]``.

Both train the same recipe on the same batches with the same clipping and the same fused optimizer. The plain loop is
what one writes by hand: one forward, one backward, no guard, no log, no look at signals. Steps are measured in turn,
in blocks, in one process at one thread, and in CPU time, because the difference is tenths of a millisecond and the
machine may be shared. Saving is reported apart, in real time.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from benchmarks.parts.card import Row, row, write
from graphmill.graph.build import build_graph
from graphmill.graph.settings import GraphSettings
from graphmill.graph.typed_graph import TypedGraph
from graphmill.ingest.kg_csv import read_kg_csv
from graphmill.ingest.samples.catalog import write_sample
from graphmill.runs.recorder import RunListener
from graphmill.runs.resolve import Job, resolve
from graphmill.systems import registry
from graphmill.training.checkpoint import CheckpointStore
from graphmill.training.contract import Execution, Recipe
from graphmill.training.engine import Engine
from graphmill.training.optimizers import PhaseOptimizer
from graphmill.training.run_directory import RunDirectory
from graphmill.training.signals import StopRequest

#: Workload → settings over the defaults: a step of a millisecond or two, and one of tens.
WORKLOADS: dict[str, dict[str, Any]] = {
    "hgt without layers, width 16": {
        "recipe": "hgt",
        "model": {"embedding_dim": 16, "hidden_dim": 16, "num_heads": 2, "num_layers": 0},
        "objective": {"contrastive_weight": 0.0},
        "sampling": {"edge_sample_size": 50},
    },
    "hgt, 2 layers, width 64": {
        "recipe": "hgt",
        "model": {"embedding_dim": 64, "hidden_dim": 64, "num_heads": 4},
    },
}
CPU = torch.device("cpu")


def plain_loop(recipe: Recipe, job: Job, steps: int) -> list[float]:
    """Seconds of each step of a loop written by hand."""
    settings, phase = job.settings, recipe.phases[0]
    model = recipe.build(Execution()).train()
    optimizer = PhaseOptimizer(settings.training, recipe.parameter_groups(model, phase), CPU)
    seconds, before = [], time.process_time()
    for index in range(steps):
        batch = recipe.step(phase, 0, index)
        loss = torch.zeros(())
        for group in batch.groups():
            encoded = recipe.encode(model, group)
            for term in recipe.terms(model, group, encoded):
                loss = loss + term.sum * (term.coefficient / batch.weights[term.name])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(optimizer.parameters, settings.acceleration.clip_norm)
        optimizer.step(settings.training.learning_rate)
        model.zero_grad()
        now = time.process_time()
        seconds.append(now - before)
        before = now
    return seconds


class _Timed(RunListener):
    """The listener of a real run, with every step's time."""

    def __init__(self, run: RunDirectory, steps: int) -> None:
        super().__init__(run, [], epochs=1, steps_per_epoch=steps, every_seconds=5.0)
        self.all: list[float] = []
        self.before = 0.0

    def on_step(self, *arguments: Any) -> None:
        super().on_step(*arguments)
        now = time.process_time()
        if self.before:
            self.all.append(now - self.before)
        self.before = now

    def on_epoch(self, record: dict[str, Any]) -> None:
        """The report of an epoch is no part of a step."""


def engine_loop(recipe: Recipe, job: Job, steps: int, folder: Path) -> tuple[list[float], list[float], int]:
    """Seconds of each step in the engine, with logging and guards; seconds of five saves, and the bytes of one."""
    run = RunDirectory(folder).create()
    listener = _Timed(run, steps)
    engine = Engine(
        recipe,
        job.settings.training.model_copy(update={"epochs": 1}),
        job.settings.acceleration,
        job.settings.evaluation.model_copy(update={"max_queries": 1}),
        device=CPU,
        precision="fp32",
        execution=Execution(),
        listener=listener,
        stop=StopRequest(),
    )
    engine.fit()
    engine.store = CheckpointStore(run.checkpoints)
    saves = []
    for _ in range(5):
        engine.state.steps += 1
        before = time.perf_counter()
        engine.save()
        saves.append(time.perf_counter() - before)
    return listener.all, saves, engine.store.list()[-1].bytes


def measure(name: str, graph: TypedGraph, steps: int, blocks: int, folder: Path) -> list[Row]:
    """Both loops in turn, ``blocks`` times ``steps`` steps."""
    values = {"data": str(graph.path), "preset": "none", **WORKLOADS[name]}
    values["training"] = {"steps_per_epoch": steps, "warmup_steps": 0}
    values["acceleration"] = {**values.get("acceleration", {}), "threads": 1, "loss_chunks": 1}
    job = resolve(values, "benchmark")
    recipe = registry.create(job.settings.recipe, graph, job.settings, job.batching)
    recipe.to(CPU)
    torch.set_num_threads(1)
    plain_loop(recipe, job, 5)  # what is compiled or built once
    ours, theirs, saves, size = [], [], [], 0
    for block in range(blocks):
        theirs.append(statistics.median(plain_loop(recipe, job, steps)[1:]))
        seconds, saving, size = engine_loop(recipe, job, steps, folder / f"{name}-{block}")
        ours.append(statistics.median(seconds))
        saves += saving
    # Block by block, so that what else the machine does falls on both.
    overhead = statistics.median(a - b for a, b in zip(ours, theirs, strict=True))
    plain, engine = statistics.median(theirs), statistics.median(ours)
    allowed = max(0.03 * plain, 0.0005)
    note = f"CPU time, {blocks} blocks of {steps} steps; overhead {overhead * 1e3:.3f} ms, allowed {allowed * 1e3:.3f}"
    return [
        row(name, "step", "ms", engine * 1e3, rival="a plain torch loop", theirs=plain * 1e3, note=note),
        row(name, "overhead / max(3 %, 0.5 ms)", "", overhead / allowed, target="ours <= 1", note=note),
        row(name, "save", "ms", statistics.median(saves) * 1e3, note=f"{size / 1e6:.2f} MB, fsync included"),
    ]


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="write benchmarks/results/engine.json")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--blocks", type=int, default=7)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory)
        tables = read_kg_csv(str(write_sample("biomed", "tiny", folder / "kg.csv")))
        graph = build_graph(tables.nodes, tables.edges, GraphSettings(), folder / "graph")
        rows = [r for name in WORKLOADS for r in measure(name, graph, chosen.steps, chosen.blocks, folder)]
    for r in rows:
        print(f"{r.workload}: {r.metric} {r.ours:.3g} {r.unit} {r.target and f'({r.target})'} {r.note}")
    if chosen.json:
        command = f"python -m benchmarks.engine --json --steps {chosen.steps} --blocks {chosen.blocks}"
        print(f"wrote {write('engine', rows, command).name}")


if __name__ == "__main__":
    main()
