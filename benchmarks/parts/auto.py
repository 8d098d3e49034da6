"""``system: auto`` beside each system that it chooses among, on test: ``python -m benchmarks.recommenders auto --json``.

``choose`` takes one of popularity, item-kNN, EASE and ``mf`` by validation, with ``mf``'s λ; one seed, one thread. Here all
are read on test: the chosen one over the best of the four by their defaults, and ``mf`` over the best closed form.
Data: the given splits of tiktok and baby, a tenth of last-fm's training held out, and a random split of ml-latest-small.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.parts.card import DATASETS, Row, fresh, row, store

SYSTEMS = ("popularity", "item_knn", "ease", "mf")
DATA = ("last-fm valid", "tiktok", "baby", "ml-latest-small")
METRIC, BUDGET = "recall@20", "2h"
COMMAND = "python -m benchmarks.recommenders auto --json"
ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


def graph_of(data: str, folder: Path) -> Path:
    """The graph of one of :data:`DATA`."""
    from benchmarks.recommenders import graph_of as shipped
    from graphmill.graph.build import build_graph
    from graphmill.graph.settings import GraphSettings
    from graphmill.ingest.sequence import read_sequence

    if data != "ml-latest-small":
        return shipped(data, folder)
    tables = read_sequence(DATASETS / data / f"{data}.txt.gz")
    split = {"method": "random", "valid": 0.1, "test": 0.1}
    settings = GraphSettings.model_validate({"add_reverse": "never", "split": split})
    return build_graph(tables.nodes, tables.edges, settings, folder / "graph").path


def measure(data: str, folder: Path) -> dict[str, Any]:
    """The choice, and the figures of each candidate on validation and test; its runs are in ``folder``."""
    from graphmill.runs.export import evaluate_run, restore
    from graphmill.usage.choose import choose

    how = {"acceleration": {"device": "cpu"}, "evaluation": {"baselines": []}}
    with contextlib.redirect_stdout(sys.stderr):
        graph = graph_of(data, folder)
        found = choose(graph, BUDGET, systems=SYSTEMS, overrides=how, tell=lambda line: print(line, file=sys.stderr))
        figures = {
            each.name: {
                "valid": each.figure,
                "test": evaluate_run(restore(each.run))["test"][METRIC],
                "seconds": each.seconds,
                "chosen": each.run == found.run,
            }
            for each in found.candidates
            if each.run
        }
    return {"figures": figures, "sentence": found.sentence}


def rows_of(data: str, found: dict[str, Any]) -> list[Row]:
    """``auto`` over the best of the four, and ``mf`` over the best closed form."""
    figures = found["figures"]
    chosen = next(name for name, each in figures.items() if each["chosen"])
    best = max(SYSTEMS, key=lambda name: figures[name]["test"])
    closed = max(SYSTEMS[:3], key=lambda name: figures[name]["test"])
    factors = {name: each for name, each in figures.items() if name.startswith("mf")}
    tuned = max(factors, key=lambda name: factors[name]["valid"])
    every = "; ".join(f"{name} {each['valid']:.4f} / {each['test']:.4f}, {each['seconds']:.0f} s"
                      for name, each in figures.items())  # fmt: skip
    compared = (
        ("auto", chosen, best, "ratio >= 0.98"),
        ("mf by defaults", "mf", closed, "ratio >= 1"),
        ("mf, λ by validation", tuned, closed, "ratio >= 1"),
    )
    return [
        row(
            f"{data}, {what}",
            f"test {METRIC}",
            "",
            figures[ours]["test"],
            rival=theirs,
            theirs=figures[theirs]["test"],
            target=target,
            note=f"{ours}; validation / test and seconds: {every}",
        )
        for what, ours, theirs, target in compared
    ]


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=DATA, action="append", help="data; without it, all")
    parser.add_argument("--json", action="store_true", help="write benchmarks/results/auto.json")
    parser.add_argument("--one", choices=DATA, help="one measurement, in this process")
    parser.add_argument("--folder", default="", help="of the runs, with which a killed measurement goes on")
    args = parser.parse_args()
    if args.one:
        with tempfile.TemporaryDirectory() as name:
            print(json.dumps(measure(args.one, Path(args.folder or name))))
        return
    for data in args.only or DATA:
        for found in rows_of(data, fresh("benchmarks.parts.auto", ["--one", data], ONE_THREAD)):
            print(json.dumps(found.__dict__, ensure_ascii=False), flush=True)
            if args.json:
                store("auto", found, COMMAND)


if __name__ == "__main__":
    main()
