"""ConvE on small graphs as a user starts it: the defaults that ``preset: auto`` takes there beside the plain ones.

``python -m benchmarks.conve small --json --kinship DIR [--data kinship umls nations] [--seeds 0]``. The best epoch by
validation MRR (filtered, both sides, all queries), test read once. UMLS and Nations are among the data sets; Kinship's
three files are in every PyKEEN wheel (``pykeen/datasets/kinships``), and ``--kinship`` is the folder with them.
``--settings JSON``: a trial of other settings, which prints validation figures alone and stores nothing; ``--keep DIR``:
finished trainings are kept there and not run again. ``--baselines``: kNN, spectral vectors (width 512) and ComplEx on the
same queries in place of trainings, also of FB15k-237.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import tempfile
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING, Any

from benchmarks.parts.card import Row, fresh, row, store

os.environ.setdefault("OMP_NUM_THREADS", "1")  # all its figures are of one thread


if TYPE_CHECKING:
    from graphmill.graph.typed_graph import TypedGraph

PRESETS = ("auto", "none")
FOLDERS = {"umls": "UMLS", "nations": "Nations", "fb15k-237": "FB15k-237"}
TARGETS = {"kinship": "ours >= 0.81"}
"""Of auto's test MRR. Published for ConvE on Kinship: .83 (Dettmers et al. 2018)."""


def graph_of(data: str, folder: str, out: Path) -> TypedGraph:
    """The data set's graph without reverses, as ConvE reads it."""
    from benchmarks.parts.conve_step import data_folder
    from graphmill.graph.build import build_graph
    from graphmill.graph.settings import GraphSettings
    from graphmill.ingest.triples import read_triples

    tables = read_triples(Path(folder) if folder else data_folder(FOLDERS[data]))
    return build_graph(tables.nodes, tables.edges, GraphSettings(add_reverse="never"), out)


def baseline_rows(data: str, folder: str) -> list[Row]:
    """Test MRR of each baseline over all queries of both sides; its settings are chosen by the same on validation."""
    from graphmill.evaluation.ranking.queries import both_sides
    from graphmill.runs.messages import Terminal
    from graphmill.usage.baselines import LinkBaselines

    with tempfile.TemporaryDirectory() as scratch:
        graph = graph_of(data, folder, Path(scratch) / "graph")
        both = both_sides(graph, "test")
        baselines = LinkBaselines(graph, both, Path(scratch), 512, average="micro", outlets=[Terminal()])
        with contextlib.redirect_stdout(sys.stderr):
            result = baselines.rankings()
    return [row(f"{data}, baselines, test", f"mrr of {name}", "", one.micro["mrr"]) for name, one in result.items()]


def train_once(data: str, folder: str, preset: str, seed: int, changes: dict[str, Any]) -> dict[str, Any]:
    """One training; figures at its best epoch."""
    from graphmill.runs.resolve import merge
    from graphmill.runs.train import train

    with tempfile.TemporaryDirectory() as scratch:
        graph = graph_of(data, folder, Path(scratch) / "graph")
        ours = {
            "system": "conve",
            "preset": preset,
            "data": str(graph.path),
            "training": {"seed": seed},
            "acceleration": {"device": "cpu"},
            "evaluation": {"eval_every": 10},
            "export": {"csv": False},
        }
        with contextlib.redirect_stdout(sys.stderr):
            report = train(merge(ours, changes), "benchmark", root=str(Path(scratch) / "runs"))
    names = ("best_epoch", "epochs_done", "steps_done", "seconds")
    kept = ("valid_mrr", "test_mrr", "test_hits@10")
    return {name: report[name] for name in names} | {name: report["metrics"][name] for name in kept}


def rows_of(data: str, preset: str, runs: list[dict[str, Any]]) -> list[Row]:
    """The rows of one preset, its seeds together."""
    name, result = f"{data}, preset {preset}, test, {len(runs)} seeds", []
    for metric in ("mrr", "hits@10"):
        values = [run[f"test_{metric}"] for run in runs]
        target = TARGETS.get(data, "") if (preset, metric) == ("auto", "mrr") else ""
        note = "seeds " + ", ".join(f"{value:.4f}" for value in values)
        result.append(row(name, metric, "", mean(values), target=target, note=note))
    epochs = ", ".join(f"{run['best_epoch']} of {run['epochs_done']}" for run in runs)
    valid = ", ".join(f"{run['valid_mrr']:.4f}" for run in runs)
    note = f"best epochs {epochs}; {runs[0]['steps_done']:,} steps; valid MRR {valid}"
    result.append(row(name, "training", "s", mean(run["seconds"] for run in runs), note=note))
    return result


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="write benchmarks/results/conve_small.json")
    parser.add_argument("--data", nargs="*", choices=("kinship", *FOLDERS), default=["umls", "nations"])
    parser.add_argument("--presets", nargs="*", choices=PRESETS, default=list(PRESETS))
    parser.add_argument("--kinship", default="", help="folder with Kinship's train.txt, valid.txt and test.txt")
    parser.add_argument("--seeds", type=int, nargs="*", default=[0])
    parser.add_argument(
        "--settings", default="", help="JSON that is merged over the settings: a trial, on validation alone"
    )
    parser.add_argument("--baselines", action="store_true", help="the baselines in place of trainings")
    parser.add_argument("--keep", type=Path, help="a folder for finished trainings: what is there is not trained again")
    parser.add_argument("--one", nargs=3, metavar=("DATA", "PRESET", "SEED"), help="one training in this process")
    arguments = parser.parse_args()
    if "fb15k-237" in arguments.data and not arguments.baselines:
        parser.error("--data fb15k-237 is for --baselines")
    if "kinship" in arguments.data and not arguments.kinship and not arguments.one:
        parser.error("--data kinship needs --kinship DIR")
    if arguments.one:
        data, preset, seed = arguments.one
        changes = json.loads(arguments.settings or "{}")
        folder = arguments.kinship if data == "kinship" else ""
        print(json.dumps(train_once(data, folder, preset, int(seed), changes)))
        return
    for data in arguments.data:
        if arguments.baselines:
            _report(baseline_rows(data, arguments.kinship if data == "kinship" else ""), arguments.json)
            continue
        for preset in arguments.presets:
            more = ["--kinship", arguments.kinship, "--settings", arguments.settings]
            runs = [_kept(arguments.keep, [data, preset, str(seed)], more) for seed in arguments.seeds]
            if arguments.settings:
                print(json.dumps({"data": data, "valid_mrr": [run["valid_mrr"] for run in runs]}), flush=True)
                continue
            _report(rows_of(data, preset, runs), arguments.json)


def _report(rows: list[Row], stored: bool) -> None:
    """Print rows, and store them if asked to."""
    for one in rows:
        print(json.dumps(one.__dict__, ensure_ascii=False), flush=True)
        if stored:
            command = "python -m benchmarks.conve small --json --data kinship umls nations --kinship DIR [--baselines]"
            store("conve_small", one, command)


def _kept(folder: Path | None, which: list[str], more: list[str]) -> dict[str, Any]:
    """One training in a fresh process, or what ``folder`` has of it from before."""
    file = None if folder is None else folder / f"{'-'.join(which)}.json"
    if file is not None and file.is_file():
        kept: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        return kept
    result = fresh("benchmarks.parts.conve_small", ["--one", *which, *more])
    if file is not None:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(result), encoding="utf-8")
    return result


if __name__ == "__main__":
    main()
