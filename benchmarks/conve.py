"""``python -m benchmarks.conve --json``: ConvE beside PyKEEN, and what it reaches on UMLS and FB15k-237.

Each figure comes from a fresh process (``parts/conve_step.py``). Time is compared with the tuned rival (the allocator
keeps its heap), memory with the rival as installed; PyKEEN multiplies a batch × entities × width tensor instead of
calling a matrix product, which is where the ratio comes from. ``--rival-python`` names the interpreter that has PyKEEN,
where that is another one. ``--only ROW`` measures one row and leaves the others as they are.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from statistics import mean, median
from typing import Any

import numpy as np

from benchmarks.parts.card import ROOT, Row, fresh, handed_over, row, store
from graphmill.training.allocator import KEEP_HEAP

STEP = "benchmarks.parts.conve_step"
RIVAL = {"python": ""}
Run = dict[str, Any]


def measure(*arguments: str, tuned: bool = True) -> Run:
    return _with_median(fresh(STEP, arguments, KEEP_HEAP if tuned else {}))


def rival(*arguments: str, tuned: bool = True) -> Run:
    """The same by the interpreter that has PyKEEN."""
    if not RIVAL["python"]:
        return measure(*arguments, "--variant", "pykeen", tuned=tuned)
    environment = {**os.environ, **(KEEP_HEAP if tuned else {}), "PYTHONPATH": f"{ROOT}:{ROOT / 'src'}"}
    command = [RIVAL["python"], "-m", STEP, *arguments, "--variant", "pykeen"]
    finished = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    return _with_median(json.loads(finished.stdout.strip().splitlines()[-1]))


def _with_median(run: Run) -> Run:
    if "seconds" in run:
        run["s"] = median(run["seconds"])
    run["own_gb"] = run.get("own_gb", run["peak_gb"] - run["imported_gb"])
    return run


def step_rows() -> Iterator[Row]:
    """A training step on FB15k-237, in turn."""
    pairs = [
        (measure("step"), measure("step", "--variant", "ours,bf16"), rival("step", "--count", "5")) for _ in range(2)
    ]
    for place, name, target in ((0, "fp32", "ratio <= 0.143"), (1, "bf16", "ratio <= 0.091")):
        best = min(pairs, key=lambda p: p[place]["s"] / p[2]["s"])
        note = "steps " + ", ".join(f"{s:.3g}" for s in best[place]["seconds"])
        yield row(
            f"FB15k-237 {name}", "step", "s", best[place]["s"], rival="PyKEEN tuned", theirs=best[2]["s"],
            target=target, note=note,
        )  # fmt: skip
    stock = rival("step", "--count", "2", tuned=False)
    yield row(
        "FB15k-237 fp32", "peak memory", "GB", pairs[0][0]["own_gb"], rival="PyKEEN as installed",
        theirs=stock["own_gb"], target="ratio <= 0.125", note="above the imports; PyKEEN stores batch × entities × width",
    )  # fmt: skip


def evaluation_rows() -> Iterator[Row]:
    """Filtered ranking of the FB15k-237 test split, both sides."""
    ours, theirs = measure("evaluate"), rival("evaluate")
    yield row(
        "FB15k-237 test", "filtered ranking", "s", ours["s"], rival="PyKEEN tuned", theirs=theirs["s"],
        target="ratio <= 0.125", note="ranks are compared in tests/systems/conve/test_ranking.py",
    )  # fmt: skip


def _umls() -> list[Run]:
    """Three seeds on UMLS: best epoch by valid, test read once."""
    return [_train("UMLS", {"training": {"epochs": 200, "seed": s}}) for s in range(3)]


def _seeds(runs: list[Run], metric: str) -> tuple[list[float], str]:
    values = [r["metrics"][metric] for r in runs]
    return values, "seeds: " + ", ".join(f"{v:.4f}" for v in values)


def umls_rows() -> Iterator[Row]:
    """Quality and time on UMLS in fp32."""
    runs = _umls()
    mrr, note = _seeds(runs, "test_mrr")
    yield row("UMLS", "test MRR, mean of 3 seeds", "", mean(mrr), target="ours >= 0.938", note=note)
    yield row("UMLS", "test MRR, worst seed", "", min(mrr), target="ours >= 0.93")
    hits, note = _seeds(runs, "test_hits@10")
    yield row("UMLS", "test Hits@10, mean of 3 seeds", "", mean(hits), target="ours >= 0.99", note=note)
    seconds = ", ".join(f"{r['seconds']:.0f}" for r in runs)
    note = f"slowest seed of {seconds} s, evaluations included"
    yield row("UMLS", "200 epochs", "s", max(r["seconds"] for r in runs), target="ours <= 50", note=note)


def fb15k_237_rows() -> Iterator[Row]:
    """FB15k-237 by examples/conve/fb15k_237.yaml, one seed: the best epoch by valid, test read once."""
    from graphmill.runs.resolve import read_settings

    run = _train("FB15k-237", read_settings(ROOT / "examples/conve/fb15k_237.yaml"))
    note = f"valid {run['metrics']['valid_mrr']:.4f} at epoch {run['best_epoch']} of {run['epochs_done']}"
    yield row("FB15k-237", "test MRR", "", run["metrics"]["test_mrr"], target="ours >= 0.325", note=note)
    yield row("FB15k-237", "test Hits@10", "", run["metrics"]["test_hits@10"])
    yield row("FB15k-237", "training", "s", run["seconds"], note="evaluations included")


def _train(name: str, values: dict[str, Any]) -> Run:
    from benchmarks.parts.conve_step import typed_graph
    from graphmill.runs.resolve import merge
    from graphmill.runs.train import train

    base = {"system": "conve", "preset": "none", "evaluation": {"eval_every": 10}}
    values = merge(values, {"data": str(typed_graph(name).path)})
    with tempfile.TemporaryDirectory() as folder:
        return train(merge(base, values), "benchmark", root=str(Path(folder)))


ROWS: dict[str, Callable[[], Iterator[Row]]] = {
    "step": step_rows,
    "evaluation": evaluation_rows,
    "umls": umls_rows,
    "fb15k_237": fb15k_237_rows,
}


def main() -> None:
    if handed_over({"small": "conve_small"}):
        return
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=list(ROWS), action="append", help="rows to measure; without it, all")
    parser.add_argument("--rival-python", default="", help="interpreter that has PyKEEN; default: this one")
    parser.add_argument("--json", action="store_true", help="write benchmarks/results/conve.json")
    args = parser.parse_args()
    RIVAL["python"] = args.rival_python
    for name in args.only or ROWS:
        for result in ROWS[name]():
            result = replace(result, ours=float(np.float64(result.ours)))
            print(json.dumps(result.__dict__, ensure_ascii=False), flush=True)
            if args.json:
                store("conve", result, "python -m benchmarks.conve --json")


if __name__ == "__main__":
    main()
