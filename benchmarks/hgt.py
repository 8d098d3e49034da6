"""``python -m benchmarks.hgt --json``: a step of HGT beside PyTorch Geometric, in turn, and the planner's predictions.

Each figure comes from a fresh process (``benchmarks.parts.hgt_step``); seconds are the median of the steps after the
first three. ``--only ROW`` measures one row and leaves the others of ``benchmarks/results/hgt.json`` as they are;
``--missing`` leaves out those that are there, so that an interrupted measurement goes on. Time is compared with the tuned
rival (the allocator keeps its heap), which is how our worker runs as well; memory with the rival as installed.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.parts.card import RESULTS, Row, fresh, machine, replace_rows, row
from benchmarks.parts.hgt_estimate import RECOMMENDERS, WORKLOADS
from graphmill.training.allocator import KEEP_HEAP

STEP, ESTIMATE = "benchmarks.parts.hgt_step", "benchmarks.parts.hgt_estimate"
Run = dict[str, Any]


@dataclass
class Device:
    """Where steps run (``--device``), and, once one has, which model it is."""

    name: str = "cpu"
    model: str = ""


DEVICE = Device()

WARM_UP = 3
"""Steps that do not count where there are more: a heap that is kept grows for a few, until all has found its place."""


def step(graph: str, variant: str, steps: int = 8, *, tuned: bool = True) -> Run:
    """One process; adds ``s``, the median of its steps after :data:`WARM_UP` (of fewer: after the first; of one: that)."""
    arguments = ["--graph", graph, "--variant", variant, "--steps", str(steps)]
    if DEVICE.name != "cpu":
        arguments += ["--device", DEVICE.name]
    result = fresh(STEP, arguments, KEEP_HEAP if tuned else {})
    if "device_gb" in result:
        result |= {"peak_gb": result["device_gb"], "imported_gb": 0.0}
        DEVICE.model = result["device"]
    result["s"] = median(result["seconds"][WARM_UP:] or result["seconds"][1:] or result["seconds"])
    result["own_gb"] = result["peak_gb"] - result["imported_gb"]
    return result


def pyg_rows() -> Iterator[Row]:
    """Against PyTorch Geometric with its loop repaired: time tuned, memory stock, above the imports."""
    yield from _against("67k", "ours", "pyg,repaired", "ratio <= 0.303")
    yield _memory("67k", "ours", "pyg,repaired", "ratio <= 0.5")


def stock_rows() -> Iterator[Row]:
    """Against PyTorch Geometric as installed: one step, quadratic in the number of relations."""
    ours, theirs = step("20k", "ours", tuned=False), step("20k", "pyg", 1, tuned=False)
    note = "HGTConv's in-place slices clone whole gradients; its repaired figure is in the 67k rows"
    yield _timed("20k/60k/30 as installed", ours["s"], "pyg, one step", theirs["s"], "ratio <= 0.01", [ours], note)


def kg_5k_rows() -> Iterator[Row]:
    """Hetionet's sample, all ten types."""
    yield from _against("kg_5k", "ours", "pyg,repaired", "ratio <= 0.3")
    yield row(
        "kg_5k", "peak memory", "GB", step("kg_5k", "ours", 3)["peak_gb"], target="ours <= 2.5", note="whole process"
    )


def _trained(workload: str) -> Run:
    with TemporaryDirectory() as folder:
        place = f"{folder}/graph"
        fresh(ESTIMATE, ["--workload", workload, "--build", place])
        return fresh(ESTIMATE, ["--workload", workload, "--graph", place], KEEP_HEAP)


def estimate_rows() -> Iterator[Row]:
    """The planner's predictions beside what a short training takes: rival = predicted."""
    for workload in WORKLOADS | RECOMMENDERS:
        result = _trained(workload)
        name = f"estimate {workload}"
        off = abs(result["predicted_gb"] / result["peak_gb"] - 1)
        note = f"measured {result['peak_gb']:.3g}, predicted {result['predicted_gb']:.3g}; {result['steps']} steps"
        yield row(name, "peak memory, error of the prediction", "GB", off, target="ours <= 0.25", note=note)


ROWS: dict[str, Callable[[], Iterator[Row]]] = {
    "pyg": pyg_rows,
    "stock": stock_rows,
    "kg_5k": kg_5k_rows,
    "estimate": estimate_rows,
}


def _against(graph: str, ours: str, rival: str, target: str) -> Iterator[Row]:
    """In turn; of three pairs the one with the middle ratio."""
    pairs = [(step(graph, ours), step(graph, rival)) for _ in range(3)]
    mine, theirs = sorted(pairs, key=lambda p: p[0]["s"] / p[1]["s"])[1]
    yield _timed(f"{graph} {ours}", mine["s"], rival, theirs["s"], target, [our_step for our_step, _ in pairs])


def _memory(graph: str, ours: str, rival: str, target: str) -> Row:
    mine, theirs = step(graph, ours, 3), step(graph, rival, 2, tuned=False)
    note = "above the imports; ours with the heap kept, theirs as installed"
    return row(
        f"{graph} {ours}", "peak memory", "GB", mine["own_gb"], rival=rival, theirs=theirs["own_gb"], target=target,
        note=note,
    )  # fmt: skip


def _timed(
    workload: str, ours: float, rival: str, theirs: float, target: str, runs: Sequence[Run], note: str = ""
) -> Row:
    seconds = (r["seconds"] for r in runs)
    spread = "steps " + " | ".join(", ".join(f"{s:.3g}" for s in result) for result in seconds)
    return row(
        workload,
        "step",
        "s",
        ours,
        rival=rival,
        theirs=theirs,
        target=target,
        note="; ".join(filter(None, (note, spread))),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=list(ROWS), action="append", help="rows to measure; without it, all")
    parser.add_argument("--missing", action="store_true", help="leave out rows that the results file has")
    parser.add_argument("--json", action="store_true", help="write benchmarks/results/hgt.json")
    parser.add_argument("--device", default="cpu", help="where the kernel workload's steps run: cpu, cuda")
    args = parser.parse_args()
    DEVICE.name = args.device
    failed = []
    for name in args.only or ROWS:
        if args.missing and _label(name) in _done():
            continue
        start = time.perf_counter()
        try:
            result = list(ROWS[name]())
        except RuntimeError as error:  # a process that failed, for want of memory above all: the other rows go on
            print(f"{name}: {error}", file=sys.stderr)
            failed.append(name)
            continue
        print(f"{name}: {time.perf_counter() - start:.0f} s", file=sys.stderr, flush=True)
        result = [_on_device(one) for one in result]
        for one in result:
            print(json.dumps(one.__dict__, ensure_ascii=False), flush=True)
        if args.json:
            _store(name, result)
    if failed:
        sys.exit(f"not measured: {', '.join(failed)}")


def _on_device(measured_row: Row) -> Row:
    if DEVICE.name == "cpu":
        return measured_row
    return replace(measured_row, workload=f"{measured_row.workload}, on {DEVICE.name}", note=measured_row.note)


def _label(name: str) -> str:
    """What a row's note begins with."""
    if DEVICE.name == "cpu":
        return name
    if not DEVICE.model:
        import torch

        # Which one it is, so that a file keeps the rows of several beside each other.
        DEVICE.model = torch.cuda.get_device_name() if DEVICE.name == "cuda" else DEVICE.name
    return f"{name} {DEVICE.model}"


def _done() -> set[str]:
    """Names of the rows that the results file has of this processor."""
    path = RESULTS / "hgt.json"
    rows = json.loads(path.read_text(encoding="utf-8"))["rows"] if path.is_file() else []
    mine = [r for r in rows if r["processor"] == machine()["processor"]]
    return {r["note"].partition("] ")[0].removeprefix("[") for r in mine}


def _store(name: str, rows: Sequence[Row]) -> None:
    """Replace this processor's rows of this name, so that they can be measured one at a time; the note begins with it."""
    label = _label(name)
    new = [replace(r, note=f"[{label}] {r.note}") for r in rows]
    replace_rows("hgt", new, "python -m benchmarks.hgt --json", lambda r: r.note.startswith(f"[{label}] "))


if __name__ == "__main__":
    main()
