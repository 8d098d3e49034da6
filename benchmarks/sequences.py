"""``python -m benchmarks.sequences --json``: SASRec and TiSASRec beside plain implementations, in turn.

Each figure comes from a fresh process (``benchmarks.sequences_step``). Steps are timed on all threads, and ours beside the
plain implementation's, in turn, and beside what the public implementations were once recorded to take on two threads.
So are evaluations. What hyper-connections add is CPU time on one thread: other work on the machine disturbs that little.
``--only ROW`` measures some rows and leaves the others of ``benchmarks/results/sequences.json`` as they are.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator, Sequence
from statistics import median
from typing import Any

import psutil

from benchmarks.card import Row, fresh, row, store
from graphmill.training.allocator import KEEP_HEAP

STEP = "benchmarks.sequences_step"
ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
RECORDED = {
    ("sasrec", 50): 0.074,
    ("sasrec", 200): 0.31,
    ("tisasrec", 50): 0.50,
    ("tisasrec", 200): 6.46,
}
"""Seconds a step of the public implementations, two threads, as recorded once (sasrec at 50: as installed; else tuned)."""
TARGETS = {("sasrec", 50): 3.5, ("sasrec", 200): 4.0, ("tisasrec", 50): 12.0, ("tisasrec", 200): 16.0}
RECORDED_GB = 8.4
"""What TiSASRec's public implementation takes at length 200 above its imports."""
RECORDED_USER = 0.001535
"""Seconds a user of SASRec's public, sampled evaluation on the sports data."""
HEAVY_BYTES = 16 << 30
Run = dict[str, Any]


def step(
    system: str, variant: str, length: int, steps: int = 10, more: Sequence[str] = (), *, one_thread: bool = False
) -> Run:
    """One process; adds ``cpu`` and ``wall``, the medians of its steps without the first."""
    arguments = ["--system", system, "--variant", variant, "--length", str(length), "--steps", str(steps), *more]
    found = fresh(STEP, arguments, {**(ONE_THREAD if one_thread else {}), **KEEP_HEAP})
    found["cpu"] = median(found["cpu_seconds"][1:] or found["cpu_seconds"])
    found["wall"] = median(found["seconds"][1:] or found["seconds"])
    found["own_gb"] = found["peak_gb"] - found["base_gb"]
    return found


def step_rows() -> Iterator[Row]:
    """A step of each system at lengths 50 and 200, and its memory."""
    for system, length in TARGETS:
        yield from _step_row(system, length)


def _step_row(system: str, length: int) -> Iterator[Row]:
    heavy = system == "tisasrec" and length == 200
    workload, target = f"{system} {length}", f"ratio <= {1 / TARGETS[system, length]:.4f}"
    recorded = "public implementation, as recorded on 2 threads"
    plain = not heavy or psutil.virtual_memory().available >= HEAVY_BYTES
    ours, theirs = [], []
    # A short step needs many: the first dozen still widen the heap.
    many = 80 if (system, length) == ("sasrec", 50) else 30
    for _ in range(1 if heavy else 5 if many == 80 else 3):
        ours.append(step(system, "ours", length, many))
        if plain:
            theirs.append(step(system, "naive", length, 2 if heavy else many // 3))
    if heavy:
        ours += [step(system, "ours", length, 30) for _ in range(2)]
    own, note = median(run["wall"] for run in ours), "; ".join(f"{run['wall']:.3g}" for run in ours)
    if plain:
        their = median(run["wall"] for run in theirs)
        more = f"ours {note}; theirs " + "; ".join(f"{run['wall']:.3g}" for run in theirs)
        yield row(workload, "step", "s", own, rival="plain, in turn", theirs=their, target=target, note=more)
    note = f"ours {note}; the other figure is another machine's"
    theirs_then = RECORDED[system, length]
    yield row(workload, "step", "s", own, rival=recorded, theirs=theirs_then, target=target, note=note)
    most, limit = max(run["own_gb"] for run in ours), "ratio <= 0.125" if heavy else ""
    if plain:
        their = max(run["own_gb"] for run in theirs)
        yield row(workload, "memory above imports", "GB", most, rival="plain, in turn", theirs=their, target=limit)
    if heavy:
        yield row(workload, "memory above imports", "GB", most, rival=recorded, theirs=RECORDED_GB, target=limit)


def mhc_rows() -> Iterator[Row]:
    """What hyper-connections add to a SASRec step, both forms, at three widths."""
    for width in (50, 128, 512):
        for kind in ("lite", "sinkhorn"):
            pairs = [
                tuple(
                    step("sasrec", "ours", 50, 6, ["--width", str(width), "--mhc", m, "--norm", "pre"], one_thread=True)
                    for m in (kind, "off")
                )
                for _ in range(2)
            ]
            ours, plain = (median(run["cpu"] for run in runs) for runs in zip(*pairs, strict=True))
            memory = [max(run["own_gb"] for run in runs) for runs in zip(*pairs, strict=True)]
            yield row(
                f"mhc {kind}, width {width}",
                "step",
                "CPU s",
                ours,
                rival="without mhc",
                theirs=plain,
                target="ratio <= 1.25" if (kind, width) == ("lite", 512) else "",
                note=f"memory above imports {memory[0]:.3g} GB, without {memory[1]:.3g} GB",
            )


def evaluation_rows() -> Iterator[Row]:
    """Full ranking of every user of the sports data against the public, sampled evaluation of some, a user."""
    found = fresh(STEP, ["--data", "sports", "--evaluate"], KEEP_HEAP)
    yield row(
        f"full ranking, {found['users']:,} users x all items",
        "time a user",
        "s",
        found["ours"],
        rival="plain, 1 + 100 candidates, one user at a time",
        theirs=found["theirs"],
        target="ratio <= 0.05",
    )
    yield row(
        f"full ranking, {found['users']:,} users x all items",
        "time a user",
        "s",
        found["ours"],
        rival="public implementation, as recorded",
        theirs=RECORDED_USER,
        target="ratio <= 0.05",
        note="the other figure is another machine's",
    )


ROWS: dict[str, Callable[[], Iterator[Row]]] = {"step": step_rows, "mhc": mhc_rows, "evaluation": evaluation_rows}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=list(ROWS), action="append", help="rows to measure; without it, all")
    parser.add_argument("--json", action="store_true", help="write benchmarks/results/sequences.json")
    args = parser.parse_args()
    for name in args.only or ROWS:
        for found in ROWS[name]():
            print(json.dumps(found.__dict__, ensure_ascii=False), flush=True)
            if args.json:
                store("sequences", found, "python -m benchmarks.sequences --json")


if __name__ == "__main__":
    main()
