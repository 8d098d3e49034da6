"""Recall@20 of DRAGON and MMGCN on tiktok, and what it owes to the features.

``python -m benchmarks.multimodal_quality --json``. Each run is a whole training as a user starts it, in a fresh process: a
settings file of ``examples/recommenders/``, the split of the data, the best epoch by validation Recall@20, test read once,
every item ranked with training items masked (MMRec's protocol). Three seeds, each beside the same with ``shuffle_features``
(every item has another's). The final evaluation has the floors of the same split, tuned on validation. A test Recall@20
above 0.12 would be a leak: validation and test of this data set share their trends.

``--large`` measures, in place of that, DRAGON with batches of 16,384 (the rate scaled by √) beside its file's, which are the
rivals' 2,048.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from statistics import mean
from typing import Any

import yaml

from benchmarks.card import ROOT, Row, fresh, row, store

ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
RUNS = {"dragon": "tiktok_dragon", "mmgcn": "tiktok_mmgcn"}
TARGET, LEAK = 0.088, 0.12


LARGE: dict[str, dict[str, Any]] = {
    "acceleration": {"batch_size": 16384, "lr_scaling": "sqrt"},
    # An eighth as many steps an epoch.
    "training": {"epochs": 320, "learning_rate": 0.0002, "patience_epochs": 120, "warmup_steps": 20},
}
"""On top of DRAGON's file, whose batch is the rivals' 2,048."""


def train_once(system: str, seed: int, shuffled: bool, large: bool = False) -> dict[str, float]:
    """One training; its best epoch, and valid and test figures at it."""
    from benchmarks.recommender_data import root
    from graphmill.graph.build import build_graph
    from graphmill.graph.settings import GraphSettings
    from graphmill.ingest.mmrec import read_mmrec
    from graphmill.worker.job import merge
    from graphmill.worker.run import train

    settings = yaml.safe_load((ROOT / "examples" / "recommenders" / f"{RUNS[system]}.yaml").read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory() as folder:
        tables = read_mmrec(root() / "tiktok")
        graph = Path(folder) / "graph"
        build_graph(tables.nodes, tables.edges, GraphSettings(add_reverse="never"), graph, tables.features)
        own = {
            "data": str(graph),
            "training": {"seed": seed},
            "model": {"shuffle_features": shuffled},
            "acceleration": {"device": "cpu"},
            "evaluation": {"floors": not shuffled and not large and seed == 0},
        }
        with contextlib.redirect_stdout(sys.stderr):
            values = merge(merge(settings, LARGE if large else {}), own)
            report = train(values, "benchmark", root=str(Path(folder) / "runs"))
    return {"best_epoch": report["best_epoch"], "epochs": report["epochs_done"], **report["metrics"]}


def trained(cells: dict[str, list[str]]) -> dict[str, dict[str, Any]]:
    """A training for each cell, in fresh processes of one thread; nothing is timed, so two at once."""
    one = partial(fresh, "benchmarks.multimodal_quality", environment=ONE_THREAD)
    with ThreadPoolExecutor(2) as pool:
        return dict(zip(cells, pool.map(one, cells.values()), strict=True))


def rows_of(system: str, seeds: int) -> list[Row]:
    """The rows of one system."""
    cells = {f"{kind} {seed}": _arguments(system, seed, kind) for seed in range(seeds) for kind in ("own", "shuffled")}
    found = trained(cells)
    own, shuffled = ([found[f"{kind} {seed}"] for seed in range(seeds)] for kind in ("own", "shuffled"))
    floors = ("popularity", "item_knn", "ease", "bpr_mf")
    floor = max((own[0][f"test_{name}_recall@20"], name) for name in floors if f"test_{name}_recall@20" in own[0])
    notes = [
        ", ".join(f"{run['test_recall@20']:.4f}" for run in own),
        "valid " + ", ".join(f"{run['valid_recall@20']:.4f}" for run in own),
        "best epochs " + ", ".join(f"{run['best_epoch']}" for run in own),
    ]
    test = mean(run["test_recall@20"] for run in own)
    other = mean(run["test_recall@20"] for run in shuffled)
    each = ", ".join(f"{run['test_recall@20']:.4f}" for run in shuffled)
    return [
        row(
            f"tiktok {system}, test, {seeds} seeds",
            "recall@20",
            "",
            test,
            rival=f"best floor ({floor[1]})",
            theirs=floor[0],
            target=f"ours >= {TARGET}",
            note="; ".join(notes),
        ),
        row(f"tiktok {system}, test, no leak", "recall@20", "", test, target=f"ours <= {LEAK}"),
        row(
            f"tiktok {system}, test, {seeds} seeds",
            "ndcg@20",
            "",
            mean(run["test_ndcg@20"] for run in own),
            rival=f"best floor ({floor[1]})",
            theirs=own[0][f"test_{floor[1]}_ndcg@20"],
        ),
        row(
            f"tiktok {system}, test, {seeds} seeds",
            "recall@20",
            "",
            test,
            rival="the same with shuffled features",
            theirs=other,
            target="ratio > 1",
            note=f"shuffled {each}",
        ),
    ]


def large_rows(seeds: int) -> list[Row]:
    """DRAGON with large batches beside its file, which has the rivals'."""
    kinds = ("large-batch", "own")
    cells = {f"{kind} {seed}": _arguments("dragon", seed, kind) for seed in range(seeds) for kind in kinds}
    found = trained(cells)
    large, base = ([found[f"{kind} {seed}"] for seed in range(seeds)] for kind in kinds)
    rows = []
    for split in ("valid", "test"):
        own, other = ([run[f"{split}_recall@20"] for run in runs] for runs in (large, base))
        note = f"each {_listed(own)} | {_listed(other)}; best epochs "
        note += " | ".join(", ".join(f"{run['best_epoch']}" for run in runs) for runs in (large, base))
        gains = (mean(run[f"{split}_ndcg@20"] for run in runs) for runs in (large, base))
        note += "; ndcg@20 " + " | ".join(f"{gain:.4f}" for gain in gains)
        rows.append(
            row(
                f"tiktok dragon, batch 16384, {split}, {seeds} seeds",
                "recall@20",
                "",
                mean(own),
                rival="a batch of 2048",
                theirs=mean(other),
                target="ratio >= 0.99",
                note=note,
            )
        )
    return rows


def _listed(values: list[float]) -> str:
    return ", ".join(f"{value:.4f}" for value in values)


def _arguments(system: str, seed: int, kind: str) -> list[str]:
    return ["--system", system, "--seed", str(seed), *([] if kind == "own" else [f"--{kind}"]), "--one"]


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="write benchmarks/results/multimodal_quality.json")
    parser.add_argument("--systems", nargs="*", default=list(RUNS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--one", action="store_true", help="one training in this process")
    parser.add_argument("--system", choices=list(RUNS), default="dragon")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--shuffled", action="store_true")
    parser.add_argument("--large", action="store_true", help="batches of 16,384 beside those of 2,048")
    parser.add_argument("--large-batch", action="store_true", help="with --one: batches of 16,384")
    arguments = parser.parse_args()
    if arguments.one:
        result: dict[str, Any] = train_once(arguments.system, arguments.seed, arguments.shuffled, arguments.large_batch)
        print(json.dumps(result))
        return
    rows = (
        large_rows(arguments.seeds)
        if arguments.large
        else [r for system in arguments.systems for r in rows_of(system, arguments.seeds)]
    )
    for r in rows:
        print(f"{r.workload:34} {r.metric:10} {r.ours:.4f} {r.theirs or 0:.4f} {r.rival} {r.holds} {r.note}")
        if arguments.json:
            store("multimodal_quality", r, "python -m benchmarks.multimodal_quality --json [--large]")


if __name__ == "__main__":
    main()
