"""``python -m benchmarks.validation --json``: the health report of 130,000 × 512 embeddings, from Parquet and from CSV.

The embeddings are drawn: ten types around means of their own, a spectrum that decays, exported by the product itself. Each
report is a fresh process with two threads; seconds are from the file to the report, imports apart.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import numpy as np
import pyarrow as pa

from benchmarks.card import Row, fresh, peak_rss, row, write
from graphmill.export.embeddings import export_embeddings
from graphmill.training.contract import EmbeddingBlock
from graphmill.training.settings import ExportSettings

ROWS, DIM, TYPES, BLOCK = 130_000, 512, 10, 10_000
TARGETS = {"embeddings.parquet": 10, "embeddings.csv": 40}


def draw(folder: Path, csv: bool = True) -> None:
    """Write both files into ``folder``, or the Parquet file alone."""
    rng = np.random.default_rng(0)
    types = np.sort(rng.integers(0, TYPES, ROWS))
    means = rng.standard_normal((TYPES, DIM)).astype(np.float32)
    decay = (np.arange(1, DIM + 1) ** -0.3).astype(np.float32)

    def blocks() -> Iterator[EmbeddingBlock]:
        for start in range(0, ROWS, BLOCK):
            own = types[start : start + BLOCK]
            noise = rng.standard_normal((len(own), DIM)).astype(np.float32)
            yield EmbeddingBlock(start, 0.5 * means[own] + noise * decay)

    ids = [f"n{number}" for number in range(ROWS)]
    nodes = pa.table(
        {
            "index": pa.array(range(ROWS), pa.int64()),
            "id": ids,
            "type": pa.array([f"type {t}" for t in types]).dictionary_encode(),
            "name": ids,
            "source": pa.array(["drawn"] * ROWS).dictionary_encode(),
        }
    )
    export_embeddings(blocks(), nodes, DIM, folder, ExportSettings(csv=csv, parquet=True), {})


def report(file: Path) -> dict[str, float | str]:
    """Seconds from the file to its report, in this process."""
    from graphmill.runs.validation import validate_file

    started = time.perf_counter()
    found = validate_file(file)
    return {"seconds": time.perf_counter() - started, "peak_gib": peak_rss(), "failure": found.failure}


def rows_of(folder: Path, repeats: int) -> list[Row]:
    rows = []
    for name, limit in TARGETS.items():
        arguments = ["--one", str(folder / name)]
        runs = [fresh("benchmarks.validation", arguments, {"OMP_NUM_THREADS": "2"}) for _ in range(repeats)]
        seconds = [run["seconds"] for run in runs]
        note = f"{', '.join(f'{s:.2f}' for s in seconds)}; peak {max(run['peak_gib'] for run in runs):.2f} GiB"
        workload = f"{ROWS:,} x {DIM}, {name.split('.')[-1]}"
        rows.append(row(workload, "health report", "s", median(seconds), target=f"ours <= {limit}", note=note))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="write benchmarks/results/validation.json")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--one", default="", help="measure one file in this process and print JSON")
    options = parser.parse_args()
    if options.one:
        print(json.dumps(report(Path(options.one))))
        return
    with tempfile.TemporaryDirectory() as folder:
        draw(Path(folder))
        rows = rows_of(Path(folder), options.repeats)
    for r in rows:
        print(f"{r.workload}: {r.ours:.2f} s ({r.target}: {r.holds}); {r.note}")
    if options.json:
        print(write("validation", rows, f"python -m benchmarks.validation --json --repeats {options.repeats}"))


if __name__ == "__main__":
    main()
