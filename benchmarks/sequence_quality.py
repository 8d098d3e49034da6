"""NDCG@10 and HR@10 of SASRec and TiSASRec on real sequences, beside trivial predictors and the public implementations.

``python -m benchmarks.sequence_quality --json [--data movies sports] [--forms own paper] [--seeds 3]``. Each run is a
whole training as a user starts it, in a fresh process at ``--threads`` threads: leave-one-out, the best epoch by
validation NDCG@10 of the full ranking, test read once. Popularity, Markov and item-kNN are tuned on validation, on the same
split.
Forms: ``own`` is :data:`SETTINGS`; ``default`` sets nothing; ``paper`` is the papers' training, binary
cross-entropy with one negative.
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
from typing import Any

from benchmarks.parts.card import Row, fresh, row, store

#: Data → systems and forms to train, the targets of test NDCG@10 and HR@10 (the better of the public implementation and the
#: best trivial predictor, as recorded).
PLANS: dict[str, dict[str, Any]] = {
    "movies": {
        "runs": [
            ("sasrec", "own"),
            ("tisasrec", "own"),
            ("sasrec", "default"),
            ("sasrec", "paper"),
        ],
        "targets": {"ndcg@10": 0.0605, "hr@10": 0.103},
    },
    "sports": {
        "runs": [("sasrec", "own")],
        "targets": {"ndcg@10": 0.0235, "hr@10": 0.0369},
    },
}
SETTINGS: dict[str, dict[str, Any]] = {
    "movies": {
        "model": {"max_length": 50, "dropout": 0.3},
        "training": {"epochs": 100, "patience_epochs": 20, "learning_rate": 0.002},
        "acceleration": {"batch_size": 32},
    },
    "sports": {
        "model": {"max_length": 50, "embedding_dim": 64, "dropout": 0.4},
        "objective": {"loss": "sampled_softmax", "negatives": 2048},
        "training": {"epochs": 20, "patience_epochs": 4, "learning_rate": 0.001},
        "acceleration": {"batch_size": 128},
        "evaluation": {"eval_every": 1},
    },
}
PAPER: dict[str, Any] = {
    "preset": "paper",
    "model": {"max_length": 50},
    "training": {"epochs": 200, "patience_epochs": 40},
}
SIMPLE = "simple"
FORMS = {"own": "", "default": ", plain defaults", "paper": ", papers training"}
"""What a row's name says of each form."""
BASELINES = ("popularity", "markov", "session_knn")


def settings_of(data: str, form: str) -> dict[str, Any]:
    """What a form sets on a data set."""
    if form in ("default", SIMPLE):
        return {}
    return PAPER if form == "paper" else SETTINGS[data]


def train_once(data: str, system: str, form: str, seed: int, threads: int) -> dict[str, Any]:
    """One training; its best epoch, and valid and test figures at it."""
    from benchmarks.parts.recommender_data import data_file
    from graphmill.graph.build import build_graph
    from graphmill.graph.settings import GraphSettings
    from graphmill.ingest.interactions_csv import read_sequence
    from graphmill.runs.resolve import merge
    from graphmill.runs.train import train

    os.environ["OMP_NUM_THREADS"] = str(threads)
    with tempfile.TemporaryDirectory() as folder:
        tables = read_sequence(data_file(data))
        graph = build_graph(tables.nodes, tables.edges, GraphSettings(add_reverse="never"), Path(folder) / "graph")
        values = {
            "system": system,
            "data": str(graph.path),
            "training": {"seed": seed},
            "acceleration": {"device": "cpu"},
            "evaluation": {} if (seed == 0 and form == "own") or form == SIMPLE else {"baselines": []},
        }
        with contextlib.redirect_stdout(sys.stderr):
            report = train(merge(settings_of(data, form), values), "benchmark", root=str(Path(folder) / "runs"))
    return {
        "best_epoch": report["best_epoch"],
        "epochs": report["epochs_done"],
        "wall_s": report["wall_seconds"],
        **report["metrics"],
    }


def kept_or_trained(folder: Path | None, data: str, system: str, form: str, seed: int, threads: int) -> dict[str, Any]:
    """One training in a fresh process, or what ``folder`` has of it from before."""
    file = None if folder is None else folder / f"{data}-{system}-{form}-{seed}.json"
    if file is not None and file.is_file():
        kept: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        return kept
    arguments = ["--data", data, "--threads", str(threads), "--one", system, form, str(seed)]
    result = fresh("benchmarks.sequence_quality", arguments)
    if file is not None:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(result), encoding="utf-8")
    return result


def rows_of(data: str, system: str, form: str, runs: list[dict[str, Any]]) -> list[Row]:
    """The rows of one system, its seeds together."""
    plan, has_target = PLANS[data], form == "own"
    name = f"{data} {system}{FORMS[form]}, test, {len(runs)} seeds"

    def figure(key: str) -> tuple[float, str]:
        values = [run[f"test_{key}"] for run in runs]
        return mean(values), "seeds " + ", ".join(f"{v:.4f}" for v in values)

    result = []
    for key, bound in plan["targets"].items():
        value, note = figure(key)
        best = max(((runs[0].get(f"test_{f}_{key}", 0.0), f) for f in BASELINES), default=(0.0, ""))
        if has_target and best[0]:
            target = f"ours > {bound}"
            result.append(
                row(name, key, "", value, rival=f"best baseline ({best[1]})", theirs=best[0], target=target, note=note)
            )
        else:
            result.append(row(name, key, "", value, note=note))
    if "test_untied_ndcg@10" in runs[0]:
        value, note = figure("untied_ndcg@10")
        result.append(row(name, "ndcg@10 without items that share their second", "", value, note=note))
    epochs = ", ".join(f"{run['best_epoch']} of {run['epochs']}" for run in runs)
    valid = ", ".join(f"{run['valid_ndcg@10']:.4f}" for run in runs)
    note = f"best epochs {epochs}; valid ndcg@10 {valid}"
    result.append(row(name, "training", "s", mean(run["wall_s"] for run in runs), note=note))
    return result


def simple_rows(data: str, run: dict[str, Any]) -> list[Row]:
    """Those of the predictors in closed form: popularity of the best number of days, Markov, item-kNN."""
    names = [(family, metric) for family in BASELINES for metric in PLANS[data]["targets"]]
    figures = {n: run.get(f"test_{n[0]}_{n[1]}", run[f"test_{n[1]}"]) for n in names}  # the run is Markov's
    return [row(f"{data}, closed forms, test", " ".join(name), "", value) for name, value in figures.items()]


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="write benchmarks/results/sequence_quality.json")
    parser.add_argument("--data", nargs="*", choices=list(PLANS), default=list(PLANS))
    parser.add_argument("--forms", nargs="*", choices=list(FORMS), default=list(FORMS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--keep", type=Path, help="a folder for finished trainings: what is there is not trained again")
    parser.add_argument("--simple", action="store_true", help="the predictors in closed form alone")
    parser.add_argument("--one", nargs=3, metavar=("SYSTEM", "FORM", "SEED"), help="one training in this process")
    arguments = parser.parse_args()
    if arguments.one:
        system, form, seed = arguments.one
        print(json.dumps(train_once(arguments.data[0], system, form, int(seed), arguments.threads)))
        return
    for data in arguments.data:
        if arguments.simple:
            result = kept_or_trained(arguments.keep, data, "markov", SIMPLE, 0, arguments.threads)
            for one in simple_rows(data, result):
                print(json.dumps(one.__dict__, ensure_ascii=False), flush=True)
                if arguments.json:
                    store("sequence_quality", one, "python -m benchmarks.sequence_quality --json")
            continue
        means: dict[tuple[str, str], float] = {}
        for system, form in PLANS[data]["runs"]:
            if form not in arguments.forms:
                continue
            runs = [
                kept_or_trained(arguments.keep, data, system, form, seed, arguments.threads)
                for seed in range(arguments.seeds)
            ]
            rows = rows_of(data, system, form, runs)
            means[system, form] = rows[0].ours
            if form == "paper" and (system, "own") in means:
                ours, theirs = means[system, "own"], means[system, form]
                name = f"{data} {system}, test, {arguments.seeds} seeds"
                rival = "binary cross-entropy, one negative"
                rows.append(row(name, "ndcg@10", "", ours, rival=rival, theirs=theirs, target="ratio > 1.05"))
            for one in rows:
                print(json.dumps(one.__dict__, ensure_ascii=False), flush=True)
                if arguments.json:
                    store("sequence_quality", one, "python -m benchmarks.sequence_quality --json")


if __name__ == "__main__":
    main()
