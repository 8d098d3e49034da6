"""``python -m benchmarks.large optimus [--json] [--steps 1000]``: a graph of OptimusKG's shape, from file to vectors.

190,531 nodes of ten types and 21.8 million edges of thirty relations, made up: only the counts are OptimusKG's (2026). Each
phase is the command that a user gives (``graphmill build``, ``train``, ``validate``) in a process of its own, so that its
time and its peak are its own. The system is HGT on sampled edges, ``hidden_dim`` 256, vectors of 512. A step is one sample
of 100 edges of each of the 60 relations. By default it is four of 5,000, which touch nearly every node, so that 1,000 steps
would take a day. A five-thousandth of the pairs is held out for validation and for the test: ranking a twentieth of them
would take most of the time.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv

from benchmarks.parts.card import Row, as_a_worker, replace_rows, row
from graphmill.errors import EXIT_CHECK_FAILED

NODES = {
    "gene": 61_000, "disease": 23_500, "drug": 16_800, "biological_process": 26_500, "phenotype": 17_900,
    "molecular_function": 10_200, "cellular_component": 4_100, "anatomy": 13_500, "pathway": 2_700, "exposure": 14_331,
}  # fmt: skip
EDGES, RELATIONS = 21_813_816, 30
ENTRY = "import sys; from graphmill.cli import main; sys.argv[0] = 'graphmill'; main()"


def write_edges(path: Path, scale: float = 1.0) -> int:
    """Write the edge table; the first relations have most of its rows, and nodes are popular as r^1.5. Returns its rows."""
    rng, kinds = np.random.default_rng(0), list(NODES)
    shares = 0.8 ** np.arange(RELATIONS)
    sizes = (shares / shares.sum() * EDGES * scale).astype(np.int64)
    sizes[0] += int(EDGES * scale) - sizes.sum()
    names = {
        kind: pa.array([f"{kind[:3].upper()}:{i:07d}" for i in range(max(int(n * scale), 8))])
        for kind, n in NODES.items()
    }
    schema = pa.schema([(name, pa.string()) for name in ("relation", "x_id", "x_type", "y_id", "y_type")])
    with pyarrow.csv.CSVWriter(path, schema) as file:
        for number, size in enumerate(sizes.tolist()):
            # Relations go round the types, so that every type has an edge of its own.
            ends = kinds[number % 10], kinds[(number * 7 + number // 10 + 1) % 10]
            for start in range(0, size, 1 << 20):
                count = min(1 << 20, size - start)
                columns = [pa.repeat(pa.scalar(f"r{number:02d}"), count)]
                for kind in ends:
                    picked = (rng.random(count) ** 1.5 * len(names[kind])).astype(np.int64)
                    columns += [names[kind].take(pa.array(picked)), pa.repeat(pa.scalar(kind), count)]
                file.write_table(pa.table(columns, schema))
    return int(sizes.sum())


def command(*arguments: str) -> tuple[float, float]:
    """Wall seconds and peak GiB of ``graphmill ARGUMENTS``; raises with its output where it fails.

    Vectors of a made-up graph need not be sound: a validation that says so has done its work.
    """
    started = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-c", ENTRY, *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        env={**os.environ, **as_a_worker()},
    )  # fmt: skip
    assert process.stdout is not None
    said = process.stdout.read()
    _, status, used = os.wait4(process.pid, 0)
    code = os.waitstatus_to_exitcode(status)
    if code and (arguments[0], code) != ("validate", EXIT_CHECK_FAILED):
        raise RuntimeError(f"graphmill {' '.join(arguments)} ended with {code}:\n{said}")
    return time.perf_counter() - started, used.ru_maxrss / (2**30 if sys.platform == "darwin" else 2**20)


def measure(folder: Path, steps: int, scale: float, loss: str) -> list[Row]:
    edges = write_edges(folder / "edges.csv", scale)
    size = f"OptimusKG's shape: {sum(NODES.values()):,} nodes, {edges:,} edges, {RELATIONS} relations, made up"
    graph, runs = folder / "graph", folder / "runs"
    held_out = ["--set", "split.valid=0.0002", "--set", "split.test=0.0002"]
    settings = [
        f"data={graph}", "acceleration.batching=edge_sampled", "model.hidden_dim=256", "model.embedding_dim=512",
        f"training.steps_per_epoch={steps}", "training.epochs=1", "acceleration.device=cpu", f"objective.loss={loss}",
        "sampling.edge_sample_size=100",
    ]  # fmt: skip
    trained = ["train", "hgt", "--output", str(runs), *(part for s in settings for part in ("--set", s))]
    phases: dict[str, list[str]] = {
        "ingest and build": ["build", str(folder / "edges.csv"), "-o", str(graph), *held_out],
        f"{steps} steps by {loss}, evaluation and export": trained,
    }
    rows = []
    for name, arguments in phases.items():
        rows.append(_row(size, name, *command(*arguments)))
    run = next(path for path in runs.iterdir() if (path / "manifest.json").is_file() and not path.is_symlink())
    report = json.loads((run / "report.json").read_text(encoding="utf-8"))
    rows.append(row(size, f"a step by {loss}", "s", float(report["seconds_per_step"]), note=f"mean over {steps}"))
    rows.append(_row(size, "validate", *command("validate", str(run), "--graph", str(graph), "--json")))
    return rows


def _row(size: str, phase: str, seconds: float, gib: float) -> Row:
    found = row(size, f"peak memory: {phase}", "GiB", gib, target="ours <= 20", note=f"{seconds:.0f} s")
    print(f"{found.metric}: {gib:.2f} GiB, {seconds:.0f} s", flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="write benchmarks/results/optimus.json")
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--scale", type=float, default=1.0, help="a part of the shape, to try the benchmark")
    parser.add_argument(
        "--loss", choices=("softmax", "link_contrastive"), default="softmax", help="what HGT is trained by"
    )
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rows = measure(Path(folder), chosen.steps, chosen.scale, chosen.loss)
    for r in rows:
        print(f"{r.metric}: {r.ours:.3g} {r.unit} ({r.note})")
    if chosen.json:
        command_line = f"python -m benchmarks.large optimus --json --steps {chosen.steps} --loss {chosen.loss}"
        again = {r.metric for r in rows}
        print(f"wrote {replace_rows('optimus', rows, command_line, lambda r: r.metric in again).name}")


if __name__ == "__main__":
    main()
