"""``python -m benchmarks.large ingest [--json] [--edges 100000000] [--nodes 5000000]``: reading and building a table.

An edge table (relation, id and type of both ends) of a made-up graph is written to disk, read, and
built into a graph, in a process of their own. Nodes are popular as r^1.5. The memory told is the largest resident set that
is no mapped file (``RssAnon``), sampled four times a second, and beside it the whole.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
import threading
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.csv

from benchmarks.parts.card import Row, fresh, replace_rows, row

RELATIONS, TYPES = 20, ("gene", "disease", "drug", "pathway")
ROWS_AT_ONCE = 1 << 20


def write_edges(path: Path, edges: int, nodes: int) -> None:
    """Write the table: of ``nodes`` nodes in four types, twenty relations."""
    rng = np.random.default_rng(0)
    schema = pa.schema([(name, pa.string()) for name in ("relation", "x_id", "x_type", "y_id", "y_type")])
    relations = pa.array([f"relation_{n:02d}" for n in range(RELATIONS)])
    kinds = pa.array(TYPES)
    with pyarrow.csv.CSVWriter(path, schema) as file:
        for start in range(0, edges, ROWS_AT_ONCE):
            count = min(ROWS_AT_ONCE, edges - start)
            relation = (rng.random(count) ** 2 * RELATIONS).astype(np.int64)
            columns: list[Any] = [relations.take(pa.array(relation))]
            for shift in (0, 1):
                node = (rng.random(count) ** 1.5 * nodes).astype(np.int64)
                node += (relation * (1 + 2 * shift) - node) % len(TYPES)  # the type of an end is its relation's
                names = pa.compute.binary_join_element_wise("N", pa.array(node).cast(pa.string()), "")
                columns += [names, kinds.take(pa.array(node % len(TYPES)))]
            file.write_table(pa.table(columns, schema))


class Memory:
    """Samples of this process's memory until ``stop``: the largest anonymous part, and the largest whole, in GiB."""

    def __init__(self) -> None:
        self.anonymous = self.whole = 0.0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        while not self._stop.wait(0.25):
            text = Path("/proc/self/status").read_text()
            result = {
                name: int(size) / 2**20 for name, size in re.findall(r"^(RssAnon|VmRSS):\s*(\d+) kB$", text, re.M)
            }
            self.anonymous, self.whole = max(self.anonymous, result["RssAnon"]), max(self.whole, result["VmRSS"])

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()


def measure(file: str, folder: Path, what: str) -> dict[str, Any]:
    """Read the table, or read and build it, in this process."""
    from graphmill.graph.build import build_graph
    from graphmill.graph.settings import GraphSettings
    from graphmill.ingest.column_maps import KgColumns, KgCsvSettings
    from graphmill.ingest.kg_csv import read_kg_csv

    ends = {f"{end}_{part}": f"{xy}_{part}" for end, xy in (("head", "x"), ("tail", "y")) for part in ("id", "type")}
    settings = KgCsvSettings(columns=KgColumns(relation="relation", **ends))
    memory, seconds, processor = Memory(), [time.perf_counter()], [time.process_time()]
    tables = read_kg_csv(file, settings)
    seconds.append(time.perf_counter())
    processor.append(time.process_time())
    read = memory.anonymous, memory.whole
    memory.anonymous = memory.whole = 0.0
    print(
        f"read: {seconds[1] - seconds[0]:.0f} s, {processor[1] - processor[0]:.0f} s of processor, {read} GiB",
        file=sys.stderr,
    )
    nodes, edges = tables.nodes.num_rows, tables.edges.num_rows
    if what == "build":
        build_graph(tables.nodes, tables.edges, GraphSettings(), folder / "graph")
    memory.stop()
    seconds.append(time.perf_counter())
    processor.append(time.process_time())
    took = [[b - a for a, b in pairwise(clock)] for clock in (seconds, processor)]
    return {"nodes": nodes, "edges": edges, "seconds": took[0], "processor": took[1],
            "anonymous": [read[0], memory.anonymous], "whole": [read[1], memory.whole]}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="write benchmarks/results/ingest_large.json")
    parser.add_argument("--edges", type=int, default=100_000_000)
    parser.add_argument("--nodes", type=int, default=5_000_000)
    parser.add_argument("--read-only", action="store_true", help="do not build the graph")
    parser.add_argument("--one", nargs=3, help="measure in this process and print JSON")
    chosen = parser.parse_args()
    if chosen.one:
        print(json.dumps(measure(chosen.one[0], Path(chosen.one[1]), chosen.one[2])))
        return
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "edges.csv"
        write_edges(file, chosen.edges, chosen.nodes)
        size = file.stat().st_size / 1e9
        what = "read" if chosen.read_only else "build"
        result = fresh("benchmarks.large", ["ingest", "--one", str(file), folder, what])
    workload = f"{result['edges']:,} edges of {result['nodes']:,} nodes, {size:.1f} GB of CSV, made up"
    rows: list[Row] = []
    for place, part in enumerate(("reading", "building")[: 1 if chosen.read_only else 2]):
        limit = "ours <= 600" if part == "reading" and chosen.edges >= 100_000_000 else ""
        processor = f"{result['processor'][place]:.0f} s of processor"
        rows.append(row(workload, f"{part}: time", "s", result["seconds"][place], target=limit, note=processor))
        rows.append(row(workload, f"{part}: memory", "GiB", result["anonymous"][place],
                        note=f"{result['whole'][place]:.2f} with mapped files"))  # fmt: skip
    for r in rows:
        print(f"{r.metric}: {r.ours:.3g} {r.unit} ({r.note})")
    if chosen.json:
        command = f"python -m benchmarks.large ingest --json --edges {chosen.edges} --nodes {chosen.nodes}"
        print(f"wrote {replace_rows('ingest_large', rows, command, lambda r: r.workload == workload).name}")


if __name__ == "__main__":
    main()
