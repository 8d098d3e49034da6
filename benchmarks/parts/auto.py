"""``system: auto`` beside each system that it chooses among, on test: ``python -m benchmarks.recommenders auto --json``.

``choose`` takes one of popularity, item-kNN, EASE and ``mf`` by validation, with ``mf``'s λ. Here all are read on test:
the chosen one over the best of the four by their defaults, and ``mf`` over the best closed form; means over ``--seeds``.
``--lightgcn``: LightGCN by its defaults over ``mf``. ``--knn``: the processor time of item-kNN's similarities beside that of
the library implicit. Data: the given splits of tiktok and baby, a tenth of last-fm's
training held out, and a random split of ml-latest-small. One process at a time, one thread.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import tempfile
import time
from pathlib import Path
from statistics import mean, median
from typing import Any

from benchmarks.parts.card import DATASETS, Row, fresh, row, store

SYSTEMS = ("popularity", "item_knn", "ease", "mf")
DATA = ("last-fm valid", "tiktok", "baby", "ml-latest-small")
METRIC, BUDGET = "recall@20", "2h"
COMMAND = "python -m benchmarks.recommenders auto --json"
ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
MF, LIGHTGCN, SOFTMAX = "mf", "lightgcn", "lightgcn, preset: softmax"
Runs = list[dict[str, Any]]


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


def measure(data: str, seed: int, folder: Path) -> dict[str, Any]:
    """The choice, and the figures of each candidate on validation and test; its runs are in ``folder``."""
    from graphmill.runs.export import evaluate_run, restore
    from graphmill.usage.choose import choose

    how = {"acceleration": {"device": "cpu"}, "evaluation": {"baselines": []}, "training": {"seed": seed}}
    with contextlib.redirect_stdout(sys.stderr):
        graph = graph_of(data, folder)
        found = choose(graph, BUDGET, systems=SYSTEMS, overrides=how, tell=lambda line: print(line, file=sys.stderr))
        return {
            each.name: {
                "valid": each.figure,
                "test": evaluate_run(restore(each.run))["test"][METRIC],
                "seconds": each.seconds,
                "chosen": each.run == found.run,
            }
            for each in found.candidates
            if each.run
        }


def lightgcn(data: str, seed: int, folder: Path) -> dict[str, Any]:
    """The figures of LightGCN by its defaults and by the preset of the softmax, and of ``mf`` by its defaults."""
    from benchmarks.recommenders import train_one

    graph, figures = graph_of(data, folder), {}
    for name, preset in ((MF, "none"), (SOFTMAX, "softmax"), (LIGHTGCN, "none")):
        how = {"training": {"seed": seed}, "evaluation": {"baselines": []}, "preset": preset}
        report = train_one(folder, name.split(",")[0], graph, **how)
        metrics, seconds = report["metrics"], report["seconds"]
        figures[name] = {"valid": metrics[f"valid_{METRIC}"], "test": metrics[f"test_{METRIC}"], "seconds": seconds}
        print(name, figures[name], file=sys.stderr, flush=True)
    return figures


def knn_row(data: str) -> Row:
    """The 100 nearest items of each item by ours and by implicit, in turn on one thread: the least of seven."""
    from implicit.nearest_neighbours import CosineRecommender

    from graphmill.evaluation.baselines.recommendation import ItemModels
    from graphmill.graph.interactions import interaction_view
    from graphmill.graph.typed_graph import TypedGraph
    from graphmill.systems.recommenders.evaluate import known

    with tempfile.TemporaryDirectory() as name:
        view = interaction_view(TypedGraph.open(graph_of(data, Path(name))))
        train, rival = known(view.train), CosineRecommender(K=100, num_threads=1)
        rows = ItemModels(train, view.num_items).rows
        seconds: tuple[list[float], list[float]] = ([], [])
        for _ in range(7):
            began = time.process_time()
            ItemModels(train, view.num_items).knn_weights(100, 0.0)
            between = time.process_time()
            rival.fit(rows, show_progress=False)
            seconds[0].append(between - began)
            seconds[1].append(time.process_time() - between)
    ours, theirs = (min(each) for each in seconds)
    about = f"{len(train.items):,} interactions, {view.num_items:,} items; medians {median(seconds[0]):.3f}, "
    about += f"{median(seconds[1]):.3f}"
    return row(
        f"{data}, item-kNN",
        "processor time",
        "s",
        ours,
        rival="implicit",
        theirs=theirs,
        target="ratio <= 1.5",
        note=about,
    )


def compared(data: str, what: str, runs: Runs, ours: list[str], theirs: str, target: str) -> Row:
    """The mean over seeds of the test figures of ``ours``, one a seed, over that of ``theirs``."""
    names = list(dict.fromkeys(name for run in runs for name in run))
    every = "; ".join(
        f"{name} {_mean(runs, name, 'valid'):.4f} / {_mean(runs, name, 'test'):.4f}, {_mean(runs, name, 'seconds'):.0f} s"
        for name in names
    )
    figures = [run[name]["test"] for run, name in zip(runs, ours, strict=True)]
    note = f"{len(runs)} seeds: " + ", ".join(f"{name} {value:.4f}" for name, value in zip(ours, figures, strict=True))
    note += f"; validation / test and seconds: {every}"
    other = _mean(runs, theirs, "test")
    return row(data + what, f"test {METRIC}", "", mean(figures), rival=theirs, theirs=other, target=target, note=note)


def rows_of(data: str, runs: Runs) -> list[Row]:
    """``auto`` over the best of the four, and ``mf`` over the best closed form."""
    chosen = [next(name for name, each in run.items() if each["chosen"]) for run in runs]
    tuned = [max((name for name in run if name.startswith("mf")), key=lambda name: run[name]["valid"]) for run in runs]
    best, closed = (max(names, key=lambda name: _mean(runs, name, "test")) for names in (SYSTEMS, SYSTEMS[:3]))
    return [
        compared(data, ", auto", runs, chosen, best, "ratio >= 0.98"),
        compared(data, ", mf by defaults", runs, ["mf"] * len(runs), closed, "ratio >= 1"),
        compared(data, ", mf, λ by validation", runs, tuned, closed, "ratio >= 1"),
    ]


def _mean(runs: Runs, name: str, figure: str) -> float:
    return mean(run[name][figure] for run in runs if name in run)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=DATA, action="append", help="data; without it, all")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--lightgcn", action="store_true", help="LightGCN beside mf instead")
    parser.add_argument("--knn", action="store_true", help="item-kNN's time beside that of implicit instead")
    parser.add_argument("--json", action="store_true", help="write benchmarks/results/auto.json")
    parser.add_argument("--one", choices=DATA, help="one measurement, in this process, by the first of the seeds")
    parser.add_argument("--work", default="", help="keep the runs here, so that a killed measurement goes on")
    args = parser.parse_args()
    if args.one:
        once = lightgcn if args.lightgcn else measure
        with tempfile.TemporaryDirectory() as name:
            print(json.dumps(once(args.one, args.seeds[0], Path(args.work or name))))
        return
    for data in args.only or DATA:
        runs: Runs = []
        for seed in [] if args.knn else args.seeds:
            arguments = ["--one", data, "--seeds", str(seed), *(["--lightgcn"] if args.lightgcn else [])]
            arguments += ["--work", str(Path(args.work) / data / str(seed))] if args.work else []
            runs.append(fresh("benchmarks.parts.auto", arguments, ONE_THREAD))
        if args.knn:
            rows = [knn_row(data)]
        elif args.lightgcn:
            names = (LIGHTGCN, SOFTMAX)
            rows = [compared(data, f", {name}", runs, [name] * len(runs), MF, "ratio >= 1") for name in names]
        else:
            rows = rows_of(data, runs)
        for found in rows:
            print(json.dumps(found.__dict__, ensure_ascii=False), flush=True)
            if args.json:
                store("auto", found, COMMAND)


if __name__ == "__main__":
    main()
