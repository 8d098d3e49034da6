"""``python -m benchmarks.serving --json``: how long ``neighbors`` takes to answer at 130,000 × 512.

The embeddings are those of ``benchmarks.health``; the version is served by the real command in a process of its own, and
asked over HTTP by clients of this process, k = 10, each node drawn. Milliseconds from the request to the last byte.
"""

from __future__ import annotations

import argparse
import http.client
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from benchmarks.health import DIM, ROWS, draw
from benchmarks.parts.card import Row, row, store
from graphmill.promotion.versions import Versions

CLIENTS = (1, 4)
WARM, REQUESTS = 20, 400


def promote(folder: Path) -> None:
    """Make a version live below ``folder``."""

    def fill(scratch: Path) -> Mapping[str, Any]:
        draw(scratch)
        return {"selection_metric": "mrr", "metrics": {}, "run_dir": "", "system": "drawn", "rows": ROWS, "dim": DIM}

    versions = Versions(folder / "drawn" / "exact")
    with versions.lock():
        versions.switch(versions.add(fill), kind="promoted", by="a benchmark", why="")


@contextmanager
def served(folder: Path) -> Iterator[tuple[int, psutil.Process]]:
    """The port of ``graphmill serve``, and its process."""
    command = [sys.executable, "-m", "graphmill.cli", "serve", "--folder", str(folder), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        try:
            yield int(line.partition("127.0.0.1:")[2].partition(";")[0]), psutil.Process(process.pid)
        finally:
            process.terminate()


def ask(port: int, seed: int, count: int) -> list[float]:
    """Milliseconds of each of ``count`` requests over one connection."""
    rng, connection, taken = np.random.default_rng(seed), http.client.HTTPConnection("127.0.0.1", port), []
    for number in rng.integers(0, ROWS, count):
        begun = time.perf_counter()
        connection.request("GET", f"/v1/drawn/exact/current/neighbors?id=n{number}&k=10")
        answer = connection.getresponse()
        content = json.loads(answer.read())
        taken.append(1e3 * (time.perf_counter() - begun))
        assert answer.status == 200, content
        assert len(content["neighbors"]) == 10
    return taken


def load(port: int, clients: int) -> tuple[np.ndarray, float]:
    """Milliseconds of each request of so many clients at once, and answers a second."""
    begun = time.perf_counter()
    with ThreadPoolExecutor(clients) as pool:
        parts = pool.map(lambda seed: ask(port, seed, REQUESTS // clients), range(2, 2 + clients))
        taken = np.array([value for part in parts for value in part])
    return taken, len(taken) / (time.perf_counter() - begun)


def measured(folder: Path) -> list[Row]:
    rows = []
    promote(folder)
    with served(folder) as (port, process):
        begun = time.perf_counter()
        ask(port, 0, 1)
        opening = time.perf_counter() - begun
        ask(port, 1, WARM)
        for clients in CLIENTS:
            taken, rate = load(port, clients)
            note = f"p50 {np.percentile(taken, 50):.1f}, p99.9 {np.percentile(taken, 99.9):.1f} ms; {rate:.0f} a second"
            note += f"; {process.memory_info().rss / 2**30:.2f} GiB; first answer after {opening:.1f} s"
            workload = f"{ROWS:,} x {DIM}, exact, {clients} client{'s' if clients > 1 else ''}"
            rows.append(row(workload, "neighbors, p99", "ms", float(np.percentile(taken, 99)), note=note))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="write benchmarks/results/serving.json")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rows = measured(Path(folder))
    for r in rows:
        print(f"{r.workload}: p99 {r.ours:.1f} ms; {r.note}", flush=True)
    if options.json:
        for r in rows:
            path = store("serving", r, "python -m benchmarks.serving --json")
        print(path)


if __name__ == "__main__":
    main()
