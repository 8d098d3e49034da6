"""Seconds of one optimizer step of a sequence model in this process, ours or the plain one, on the same windows.

``python -m benchmarks.sequences_step --system tisasrec --variant naive --length 50`` prints one JSON line. Both train on
each user's newest window, batch 128, width 50, 2 blocks, dropout 0.2, BCE with one negative, Adam. ``benchmarks.sequences``
runs it for each row of the table.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

DIM, BLOCKS, RATE, BATCH, SPAN = 50, 2, 0.2, 128, 256


FILES = {
    "movies": "ml-latest-small/ml-latest-small.txt.gz",
    "sports": "amazon-sports-seq/Sports.sasrec.txt.gz",
}


def data_file(name: str) -> Path:
    """One of :data:`FILES` among the public data sets."""
    root = Path(os.environ.get("GRAPHMILL_DATASETS", Path(__file__).resolve().parents[2] / "shared" / "datasets"))
    return root / FILES[name]


def memory(field: str) -> float:
    """``VmHWM`` (the peak) or ``VmRSS`` of this process in GB (10⁹ bytes)."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024 / 1e9
    raise OSError(f"no {field} in /proc/self/status: this benchmark needs Linux")


def recipe_of(folder: Path, data: str, system: str, length: int, model: dict[str, Any]) -> Any:
    """Our recipe on the interactions of :func:`data_file`."""
    from graphmill.graph.build import build_graph
    from graphmill.graph.settings import GraphSettings
    from graphmill.ingest.sequence import read_sequence
    from graphmill.settings import parse
    from graphmill.systems import registry

    tables = read_sequence(data_file(data))
    graph = build_graph(tables.nodes, tables.edges, GraphSettings(add_reverse="never"), folder / "graph")
    values = {
        "recipe": system,
        "data": str(graph.path),
        "model": {"embedding_dim": DIM, "num_blocks": BLOCKS, "dropout": RATE, "max_length": length, **model},
        "objective": {"loss": "bce", "windows": "last"},
    }
    return registry.create(system, graph, parse(registry.settings_model(system), values, "benchmark"), "full")


def ours(recipe: Any, steps: int) -> list[tuple[float, float]]:
    """Forward, backward, norm, clip and update, as in the engine, on batches that are ready, as the plain model's are.

    In training they are made ahead by threads where ``acceleration.num_workers`` asks for that.
    """
    from graphmill.training.contract import Execution
    from graphmill.training.precision import Precision
    from graphmill.training.processes import Ranks
    from graphmill.training.step import compute_gradient

    device = torch.device("cpu")
    recipe.to(device)
    model = recipe.build(Execution()).train()
    parameters = list(model.parameters())
    optimizer = torch.optim.Adam(parameters, lr=1e-3, betas=(0.9, 0.98), fused=True)
    phase, precision = recipe.phases[0], Precision("fp32", device)
    whole = max(recipe.sampler.steps_per_epoch - 1, 1)
    batches = [recipe.step(phase, *divmod(number, whole)) for number in range(steps)]

    def step(number: int) -> None:
        epoch, index = divmod(number, whole)
        compute_gradient(
            recipe,
            model,
            parameters,
            batches[number],
            execution=Execution(),
            precision=precision,
            ranks=Ranks(),
            seed_parts=(0, epoch, index),
        )
        optimizer.step()
        for p in parameters:
            p.grad = None

    return timed(step, steps)


def naive(recipe: Any, system: str, length: int, steps: int) -> list[tuple[float, float]]:
    """The plain model on dense, left-padded batches that are ready in memory (its samplers cost it nothing here)."""
    from benchmarks.naive import sequences

    items = recipe.data.sequences.num_items
    model: torch.nn.Module
    if system == "sasrec":
        model = sequences.SASRec(items, length, DIM, BLOCKS, RATE)
    else:
        model = sequences.TiSASRec(items, length, DIM, BLOCKS, RATE, SPAN)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, betas=(0.9, 0.98))
    batches = [padded(recipe.step(recipe.phases[0], 0, i), length) for i in range(recipe.sampler.steps_per_epoch - 1)]

    def step(number: int) -> None:
        optimizer.zero_grad()
        model(*batches[number % len(batches)]).backward()
        optimizer.step()

    return timed(step, steps)


def padded(batch: Any, length: int) -> list[torch.Tensor]:
    ends = np.cumsum(batch.lengths)
    rows = np.repeat(np.arange(len(ends)), batch.lengths)
    columns = length - (np.repeat(ends, batch.lengths) - np.arange(len(batch.items)))
    times = batch.items * 0 if batch.times is None else batch.times
    out = []
    for values in (batch.items + 1, times, batch.targets + 1, batch.negatives[:, 0] + 1):
        dense = np.zeros((len(ends), length), np.int64)
        dense[rows, columns] = values
        out.append(torch.from_numpy(dense))
    return out


def evaluate(recipe: Any, length: int, rival_users: int = 100) -> dict[str, Any]:
    """Seconds a user on all threads: our full ranking of all users, and the plain sampled protocol, one at a time."""
    from benchmarks.naive import sequences
    from graphmill.training.contract import Execution

    model = recipe.build(Execution()).eval()
    users = len(recipe.evaluator.split("valid").users)
    recipe.evaluate(model, "valid", final=False, poll=lambda: None)  # what is compiled is loaded once
    start = time.perf_counter()
    recipe.evaluate(model, "valid", final=False, poll=lambda: None)
    ours_seconds = (time.perf_counter() - start) / users
    s, valid = recipe.data.sequences, recipe.evaluator.split("valid")
    plain = sequences.SASRec(s.num_items, length, DIM, BLOCKS, RATE).eval()
    rng = np.random.default_rng(0)
    for query in range(-10, rival_users):
        if query == 0:
            start = time.perf_counter()
        history = s.items[valid.start[query] : valid.stop[query]] + 1
        sequences.rank_one(plain, history, int(valid.targets[query]) + 1, s.num_items, length, rng)
    return {"ours": ours_seconds, "theirs": (time.perf_counter() - start) / rival_users, "users": users}


def timed(step: Callable[[int], None], steps: int) -> list[tuple[float, float]]:
    """Wall and CPU seconds of each step. On a machine with other work the CPU seconds of one thread are what to compare."""
    seconds = []
    for number in range(steps):
        wall, cpu = time.perf_counter(), time.process_time()
        step(number)
        seconds.append((time.perf_counter() - wall, time.process_time() - cpu))
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--system", choices=["sasrec", "tisasrec"], default="sasrec")
    parser.add_argument("--variant", choices=["ours", "naive"], default="ours")
    parser.add_argument("--data", choices=list(FILES), default="movies")
    parser.add_argument("--evaluate", action="store_true", help="time evaluations instead of steps")
    parser.add_argument("--length", type=int, default=50)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--width", type=int, default=DIM)
    parser.add_argument("--mhc", default="off")
    parser.add_argument("--norm", default="", help="ours; without it, the peer's")
    parser.add_argument("--profile", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(0)
    # SASRec's peer has post-norm; TiSASRec's the original arrangement.
    norm = args.norm or ("post" if args.system == "sasrec" else "original")
    model = {"norm": norm, "mhc": args.mhc, "embedding_dim": args.width}
    with tempfile.TemporaryDirectory() as folder:
        recipe = recipe_of(Path(folder), args.data, args.system, args.length, model)
        if args.evaluate:
            print(json.dumps(evaluate(recipe, args.length)))
            return
        base = memory("VmRSS")
        run = (
            (lambda n: ours(recipe, n))
            if args.variant == "ours"
            else lambda n: naive(recipe, args.system, args.length, n)
        )
        if args.profile:
            run(2)
            with torch.profiler.profile() as profile:
                run(3)
            print(profile.key_averages().table(sort_by="self_cpu_time_total", row_limit=25, max_name_column_width=40))
            return
        seconds = run(args.steps)
    result = {
        "system": args.system,
        "variant": args.variant,
        "length": args.length,
        "mhc": args.mhc,
        "width": args.width,
    }
    print(
        json.dumps(
            result
            | {
                "seconds": [s for s, _ in seconds],
                "cpu_seconds": [s for _, s in seconds],
                "peak_gb": memory("VmHWM"),
                "base_gb": base,
                "threads": torch.get_num_threads(),
            }
        )
    )


if __name__ == "__main__":
    main()
