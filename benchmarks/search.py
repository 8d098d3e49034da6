"""TPE against random draws at equal budget: ``python -m benchmarks.search --json`` (last-fm, MF, one thread).

Both are the product's own samplers, asked by its own search (``graphmill.search.study.run_search``) on :data:`SPACE`, ten
times each, with the same seed in turn. What a trial gives is looked up in a table of real trainings, one for each point of
:data:`GRID` (:data:`TABLE`; ``--train`` computes it, about ten minutes of one core): a trial between two points has the
figures of the nearest. The best of validation decides, as in every search; the test figure is that of the winner.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from benchmarks.parts.card import Row, row, write

TABLE = Path(__file__).with_name("parts") / "search_table.json"
GRID: dict[str, list[float]] = {
    "training.learning_rate": [0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1],
    "objective.regularisation": [0.001, 0.003, 0.01, 0.03, 0.1, 0.3],
    "model.embedding_dim": [16, 32, 64],
    "objective.negatives_per_positive": [1, 4],
}
SPACE: dict[str, Any] = {
    "training.learning_rate": {"low": 0.0005, "high": 0.1, "log": True},
    "objective.regularisation": {"low": 0.001, "high": 0.3, "log": True},
    "model.embedding_dim": [16, 32, 64],
    "objective.negatives_per_positive": [1, 4],
}
BASE: dict[str, Any] = {
    "training": {"epochs": 40, "seed": 0},
    "evaluation": {"baselines": [], "eval_every": 5},
}
METRIC = "recall@20"
SEEDS = range(10)
BUDGETS = (15, 30)
"""Trials of a search; the second is the product's default."""
QUANTILE = 2.262
"""Of Student's t with nine degrees of freedom, for a 95 % interval."""


def train_grid() -> dict[str, Any]:
    """The table: a training a point, with the figures of its best epoch on validation and test."""
    from benchmarks.recommenders import graph_of, train_one
    from graphmill.runs.resolve import merge
    from graphmill.search.space import nested

    entries, began = [], time.process_time()
    with tempfile.TemporaryDirectory() as name:
        graph = graph_of("last-fm valid", Path(name))
        for number, point in enumerate(itertools.product(*GRID.values())):
            values: dict[str, Any] = BASE
            for path, value in zip(GRID, point, strict=True):
                values = merge(values, nested(path, value))
            metrics = train_one(Path(name) / str(number), "mf", graph, **values)["metrics"]
            entries.append([*point, metrics[f"valid_{METRIC}"], metrics[f"test_{METRIC}"]])
    about = {"columns": [*GRID, f"valid {METRIC}", f"test {METRIC}"], "settings": BASE}
    return {**about, "cpu_seconds": round(time.process_time() - began), "points": entries}


def as_text(table: Mapping[str, Any]) -> str:
    """JSON with one line a point."""
    head = json.dumps({name: value for name, value in table.items() if name != "points"}, indent=1)
    points = ",\n  ".join(json.dumps([round(value, 6) for value in point]) for point in table["points"])
    return f'{head[:-2]},\n "points": [\n  {points}\n ]\n}}\n'


def lookup(table: Mapping[str, Any]) -> Callable[[Mapping[str, Any]], tuple[float, float]]:
    """Validation and test of the training that is nearest to some settings, by ratio."""
    known = {tuple(entry[: len(GRID)]): (entry[-2], entry[-1]) for entry in table["points"]}

    def figures(values: Mapping[str, Any]) -> tuple[float, float]:
        point = []
        for path, places in GRID.items():
            section, name = path.split(".")
            wanted = float(values[section][name])
            point.append(min(places, key=lambda place: abs(math.log(place / wanted))))
        return known[tuple(point)]

    return figures


def best_by_trials(
    sampler: str, seed: int, figures: Callable[[Mapping[str, Any]], tuple[float, float]]
) -> list[tuple[float, float]]:
    """After each trial, validation and test of the best so far by validation."""
    from graphmill.search import study

    found: list[tuple[float, float]] = []

    def run(values: Mapping[str, Any], *_: Any, **__: Any) -> tuple[dict[str, Any], str]:
        valid, test = figures(values)
        found.append(max((valid, test), found[-1] if found else (-1.0, 0.0)))
        return {"metrics": {f"valid_{METRIC}": valid}, "run_dir": str(len(found))}, ""

    kept = study.run_process
    with tempfile.TemporaryDirectory() as folder:
        values = {"system": "mf", "data": folder, "preset": "none", **BASE}
        asked = {"space": SPACE, "sampler": sampler, "trials": max(BUDGETS), "seed": seed, "prune": False}
        study.run_process = run
        try:
            study.run_search(study.open_search({**values, "search": asked}, "benchmark", folder))
        finally:
            study.run_process = kept
    return found


def rows_of(table: Mapping[str, Any]) -> list[Row]:
    """A row a budget: the mean of validation by both, and the paired difference with its interval."""
    figures = lookup(table)
    runs: dict[str, list[list[tuple[float, float]]]] = {"tpe": [], "random": []}
    for seed in SEEDS:
        for sampler in ("tpe", "random") if seed % 2 else ("random", "tpe"):
            runs[sampler].append(best_by_trials(sampler, seed, figures))
            print(sampler, seed, runs[sampler][-1][-1], file=sys.stderr, flush=True)
    top = max(entry[-2] for entry in table["points"])
    rows = []
    for budget in BUDGETS:
        valid = {who: [run[budget - 1][0] for run in own] for who, own in runs.items()}
        test = {who: [run[budget - 1][1] for run in own] for who, own in runs.items()}
        reached = {who: sum(value == top for value in own) for who, own in valid.items()}
        rows.append(
            row(
                f"MF on last-fm, {budget} trials, {len(SEEDS)} paired seeds",
                f"validation {METRIC} of the best trial",
                "",
                mean(valid["tpe"]),
                rival="random",
                theirs=mean(valid["random"]),
                note=f"TPE less random {told(valid['tpe'], valid['random'])}; on the test, of the winner, "
                f"{told(test['tpe'], test['random'])}; "
                f"the best of the table is {top:.4f}, reached by TPE in {reached['tpe']} "
                f"searches and by random in {reached['random']}",
            )
        )
    return rows


def told(ours: Sequence[float], theirs: Sequence[float]) -> str:
    """The mean of the paired differences with its 95 % interval."""
    differences = [a - b for a, b in zip(ours, theirs, strict=True)]
    half = QUANTILE * stdev(differences) / math.sqrt(len(differences))
    return f"{mean(differences):+.4f} (95 %: {mean(differences) - half:+.4f} to {mean(differences) + half:+.4f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="write benchmarks/results/search.json")
    parser.add_argument("--train", action="store_true", help="compute the table of trainings again")
    options = parser.parse_args()
    if options.train:
        TABLE.write_text(as_text(train_grid()), encoding="utf-8")
    rows = rows_of(json.loads(TABLE.read_text(encoding="utf-8")))
    for r in rows:
        print(f"{r.workload}: TPE {r.ours:.4f}, random {r.theirs:.4f}; {r.note}")
    if options.json:
        print(write("search", rows, "python -m benchmarks.search --json"))


if __name__ == "__main__":
    main()
