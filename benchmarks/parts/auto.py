"""``system: auto`` beside each system that it chooses among, on test: ``python -m benchmarks.recommenders auto --json``.

On items, ``choose`` takes one of popularity, item-kNN, EASE and ``mf`` by validation, with ``mf``'s λ; with ``--all``, and
on links and next items, one of all systems that suit the data. Here all that finish within ``--budget`` are read on test, by
the metric and the kind of queries of the choice: the chosen one over the best by its defaults, the time of the call over
the budget, and of the four ``mf`` over the best closed form; means over ``--seeds``. The last row is the mean over graphs.
``--lightgcn``: LightGCN over ``mf``. ``--knn``: the processor time of item-kNN's similarities beside that of
the library implicit. ``--ease``: time on two threads and memory of a training of EASE by its defaults, on made-up data.
Data: the given splits of tiktok, baby, Nations, UMLS and FB15k-237, a tenth of last-fm's training
held out, a random split of ml-latest-small and of Hetionet ``kg_5k``; by time, each user's last two items of movies
(ml-latest-small) and sports. One process at a time, one thread but for ``--ease``.
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

from benchmarks.parts.card import Row, commit_of_the_code, fresh, row, store, stored
from graphmill.systems.auto import seconds_of

SYSTEMS = ("popularity", "item_knn", "ease", "mf")
ITEMS = ("last-fm valid", "tiktok", "baby", "ml-latest-small")
LINKS = ("Nations", "UMLS", "kg_5k", "FB15k-237")
NEXT_ITEMS = ("movies", "sports")
DATA = (*ITEMS, *LINKS, *NEXT_ITEMS)
EASE_ITEMS = (15_000, 20_000)
METRIC, OF_ALL = "recall@20", ", auto of all systems"
COMMAND = "python -m benchmarks.recommenders auto --json"
ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
TWO_THREADS = {"OMP_NUM_THREADS": "2", "MKL_NUM_THREADS": "2"}
MF, LIGHTGCN, PUBLISHED = "mf", "lightgcn", "lightgcn as published"
AS_PUBLISHED = {
    "objective": {"loss": "bpr", "negatives_per_positive": 1, "regularisation": 0.0001},
    "training": {"learning_rate": 0.001, "epochs": 400},
}
Runs = list[dict[str, Any]]


def graph_of(data: str, folder: Path) -> Path:
    """The graph of one of :data:`DATA`."""
    from benchmarks.link_quality import graph_of as links
    from benchmarks.parts.recommender_data import data_file
    from benchmarks.recommenders import graph_of as shipped
    from graphmill.graph.build import build_graph
    from graphmill.graph.settings import GraphSettings
    from graphmill.ingest.interactions_csv import read_sequence

    if data in LINKS:
        return links(data, 0, folder).path
    if data in ITEMS and data != "ml-latest-small":
        return shipped(data, folder)
    tables = read_sequence(data_file("movies" if data in ITEMS else data))
    split = {"split": {"method": "random", "valid": 0.1, "test": 0.1}} if data in ITEMS else {}
    settings = GraphSettings.model_validate({"add_reverse": "never", **split})
    return build_graph(tables.nodes, tables.edges, settings, folder / "graph").path


def measure(data: str, seed: int, folder: Path, budget: str, every: bool) -> dict[str, Any]:
    """The choice, and the figures of each candidate on validation and test; its runs are in ``folder``.

    ``every``: among all systems that suit the data. ``seconds``: of the call, None where it went on after a kill.
    """
    from graphmill.evaluation.ranking.paired_difference import paired_bootstrap
    from graphmill.graph.typed_graph import TypedGraph
    from graphmill.runs.export import restore
    from graphmill.usage.choose import choose
    from graphmill.usage.shared_queries import all_of_them, shared_queries

    how = {"acceleration": {"device": "cpu"}, "evaluation": {"baselines": []}, "training": {"seed": seed}}

    def tell(line: str) -> None:
        print(f"{data}, {seed}: {line}", file=sys.stderr, flush=True)

    with contextlib.redirect_stdout(sys.stderr):
        graph = graph_of(data, folder)
        resumed, began = (graph.parent / "auto").exists(), time.monotonic()
        choice = choose(graph, budget, systems=() if every else SYSTEMS, overrides=how, tell=tell)
        seconds = None if resumed else time.monotonic() - began
        queries, tests = shared_queries(TypedGraph.open(graph), "test"), {}
        figures: dict[str, dict[str, Any]] = {}
        for each in choice.candidates:
            if each.run:
                restored = restore(each.run)
                test = queries.values(restored.system, restored.model, all_of_them, lambda: None)
                tests[each.name], chosen = test, each.run == choice.run
                about = {"valid": each.figure, "test": test.mean, "seconds": each.seconds, "chosen": chosen}
                figures[each.name] = about
        for name, test in tests.items():
            ours = next(tests[each] for each in tests if figures[each]["chosen"])
            less = paired_bootstrap(ours.values, test.values, groups=ours.groups, units=ours.units)
            figures[name]["chosen minus this"] = [less.low, less.high]
    without = {each.name: each.state for each in choice.candidates if not each.run and each.state != "does not suit"}
    named = {"systems": figures, "without": without}
    return {"metric": choice.metric, "seconds": seconds, "commit": commit_of_the_code(), **named}


def lightgcn(data: str, seed: int, folder: Path) -> dict[str, Any]:
    """The figures of LightGCN by its defaults and as it was published, and of ``mf`` by its defaults."""
    from benchmarks.recommenders import train_one
    from graphmill.runs.resolve import merge

    graph, figures = graph_of(data, folder), {}
    for name, settings in ((MF, {}), (LIGHTGCN, {}), (PUBLISHED, AS_PUBLISHED)):
        how = merge(settings, {"training": {"seed": seed}, "evaluation": {"baselines": []}})
        report = train_one(folder, name.split()[0], graph, **how)
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


def ease(items: int, folder: Path) -> dict[str, Any]:
    """A training of EASE by its defaults, λ chosen on validation, on made-up data of two users an item, with 30
    items each: seconds, processor seconds, and the peak of memory in GB. The graph is built by another process."""
    from benchmarks.parts.made_up_graphs import interactions
    from benchmarks.recommenders import train_one

    if not (folder / "pairs").exists():
        interactions(folder, 2 * items, items, 60 * items, items, 8)
        return {}
    began = time.process_time(), time.monotonic()
    report = train_one(folder, "ease", folder / "pairs")
    seconds = time.process_time() - began[0], time.monotonic() - began[1]
    return {"processor": seconds[0], "clock": seconds[1], "gb": report["peak_memory_bytes"] / 1e9}


def ease_rows(items: int, folder: Path) -> list[Row]:
    """Time and memory of :func:`ease`, in a fresh process."""
    arguments = ["--ease", str(items), "--one", ITEMS[0], "--work", str(folder)]
    for _ in range(2):
        figures = fresh("benchmarks.parts.auto", arguments, TWO_THREADS)
    what, note = f"{items:,} items, EASE by defaults", f"two threads, {figures['processor']:.0f} s of the processor"
    seconds, most = (60, "") if items <= EASE_ITEMS[0] else (150, "ours <= 2.5")
    return [
        row(what, "time by the clock", "s", figures["clock"], target=f"ours <= {seconds}", note=note),
        row(what, "peak memory of the process", "GB", figures["gb"], target=most),
    ]


def compared(
    data: str, what: str, runs: Runs, ours: list[str], theirs: str, target: str, metric: str = METRIC, more: str = ""
) -> Row:
    """The mean over seeds of the test figures of ``ours``, one a seed, over that of ``theirs``."""
    names = list(dict.fromkeys(name for run in runs for name in run))
    every = "; ".join(
        f"{name} {_mean(runs, name, 'valid'):.4f} / {_mean(runs, name, 'test'):.4f}, {_mean(runs, name, 'seconds'):.0f} s"
        for name in names
    )
    figures = [run[name]["test"] for run, name in zip(runs, ours, strict=True)]
    note = f"{len(runs)} seeds: " + ", ".join(f"{name} {value:.4f}" for name, value in zip(ours, figures, strict=True))
    note += f"; validation / test and seconds: {every}{more}"
    other = _mean(runs, theirs, "test")
    return row(data + what, f"test {metric}", "", mean(figures), rival=theirs, theirs=other, target=target, note=note)


def rows_of(data: str, measured: Runs, budget: str, every: bool) -> list[Row]:
    """``auto`` over the best by its defaults and in its time, and of the four ``mf`` over the best closed form."""
    runs: Runs = [each["systems"] for each in measured]
    chosen = [next(name for name, each in run.items() if each["chosen"]) for run in runs]
    defaults = [name for name in runs[0] if "(" not in name and all(name in run for run in runs)]
    best = max(defaults, key=lambda name: _mean(runs, name, "test"))
    without = "; without a figure: " + ", ".join(
        dict.fromkeys(f"{name} ({state})" for each in measured for name, state in each["without"].items())
    )
    without += "; 95 % of the chosen minus the best by its defaults, on test: " + ", ".join(
        "{:.4f} to {:.4f}".format(*run[best]["chosen minus this"]) for run in runs if best in run
    )
    what, metric = OF_ALL if every else ", auto", measured[0]["metric"]
    without += f"; budget {budget}; commits of the seeds: " + ", ".join(each["commit"] for each in measured)
    rows = [compared(data, what, runs, chosen, best, "ratio >= 0.98", metric, without)]
    seconds = [each["seconds"] for each in measured if each["seconds"] is not None]
    if seconds:
        limit, note = seconds_of(budget), "of the seeds: " + ", ".join(f"{each:.0f}" for each in seconds)
        rows.append(
            row(
                data + what,
                "longest time",
                "s",
                max(seconds),
                rival="budget",
                theirs=limit,
                target="ratio <= 1",
                note=note,
            )
        )
    if every:
        return rows
    tuned = [max((name for name in run if name.startswith("mf")), key=lambda name: run[name]["valid"]) for run in runs]
    closed = max(SYSTEMS[:3], key=lambda name: _mean(runs, name, "test"))
    return [
        *rows,
        compared(data, ", mf by defaults", runs, ["mf"] * len(runs), closed, "ratio >= 1"),
        compared(data, ", mf, λ by validation", runs, tuned, closed, "ratio >= 1"),
    ]


def over_all(rows: list[Row]) -> Row:
    """The mean ratio over the graphs that have a row of all systems, or else one of the four."""
    ratios = {
        data: each.ratio
        for what in (", auto", OF_ALL)
        for each in rows
        for data in DATA
        if each.workload == data + what and each.metric.startswith("test ") and each.ratio is not None
    }
    note, average = ", ".join(f"{data} {ratio:.3f}" for data, ratio in ratios.items()), mean(ratios.values())
    return row("all graphs, auto", "mean ratio to the best single default", "", average, target="ours >= 1", note=note)


def _mean(runs: Runs, name: str, figure: str) -> float:
    return mean(run[name][figure] for run in runs if name in run)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=DATA, nargs="+", help="data; without it, all")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--all", action="store_true", help="on items, too, all systems in place of the four")
    parser.add_argument("--budget", default="2h", help='of each choice, such as "10min"')
    parser.add_argument("--lightgcn", action="store_true", help="LightGCN beside mf instead")
    parser.add_argument("--knn", action="store_true", help="item-kNN's time beside that of implicit instead")
    parser.add_argument("--ease", type=int, nargs="*", help="EASE's cost instead, for numbers of items: 15000 20000")
    parser.add_argument("--json", action="store_true", help="write benchmarks/results/auto.json")
    parser.add_argument("--one", choices=DATA, help="one measurement, in this process, by the first of the seeds")
    parser.add_argument("--work", default="", help="keep the runs here, so that a killed measurement goes on")
    args = parser.parse_args()
    if args.one:
        every = args.all or args.one not in ITEMS
        with tempfile.TemporaryDirectory() as name:
            one, folder = (args.one, args.seeds[0]), Path(args.work or name)
            if args.ease:
                print(json.dumps(ease(args.ease[0], folder)))
                return
            print(json.dumps(lightgcn(*one, folder) if args.lightgcn else measure(*one, folder, args.budget, every)))
        return
    for items in [] if args.ease is None else args.ease or EASE_ITEMS:
        with tempfile.TemporaryDirectory() as name:
            for each in ease_rows(items, Path(name)):
                _show(each, args.json)
    if args.ease is not None:
        return
    of_items = args.lightgcn or args.knn
    for data in args.only or (ITEMS if of_items else DATA):
        every = args.all or data not in ITEMS
        if args.knn:
            rows = [knn_row(data)]
        else:
            runs = [_kept_or_measured(data, seed, args) for seed in args.seeds]
            if args.lightgcn:
                names = (LIGHTGCN, PUBLISHED)
                rows = [compared(data, f", {name}", runs, [name] * len(runs), MF, "ratio >= 1") for name in names]
            else:
                rows = rows_of(data, runs, args.budget, every)
        for each in rows:
            _show(each, args.json)
        if not of_items:
            _show(over_all([*stored("auto"), *rows]), args.json)


def _kept_or_measured(data: str, seed: int, args: argparse.Namespace) -> dict[str, Any]:
    """One measurement in a fresh process, or what the folder ``--work`` has of it from before."""
    how = [*(["--lightgcn"] if args.lightgcn else []), *(["--all"] if args.all else [])]
    arguments = ["--one", data, "--seeds", str(seed), "--budget", args.budget, *how]
    if not args.work:
        return fresh("benchmarks.parts.auto", arguments, ONE_THREAD)
    folder = Path(args.work) / data / str(seed)
    file = folder / ("-".join(["figures", args.budget, *how]) + ".json")
    if not file.is_file():
        result = fresh("benchmarks.parts.auto", [*arguments, "--work", str(folder)], ONE_THREAD)
        file.write_text(json.dumps(result), encoding="utf-8")
    kept: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return kept


def _show(each: Row, keep: bool) -> None:
    print(json.dumps(each.__dict__, ensure_ascii=False), flush=True)
    if keep:
        store("auto", each, COMMAND)


if __name__ == "__main__":
    main()
