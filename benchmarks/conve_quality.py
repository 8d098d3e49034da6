"""ConvE's quality on FB15k-237 on a GPU: filtered MRR and Hits@10 of test, both sides, of whole trainings.

Not run yet, for want of a GPU; its settings are a first guess, to be tuned on validation.

``python -m benchmarks.conve_quality --json [--seeds 0 1 2]``. Each training is as a user starts it, on CUDA: the best epoch
by validation MRR (filtered, both sides, all queries), test read once. ``--keep DIR``: finished trainings
are kept there and not run again; ``--settings FILE`` takes other settings (for trials, which are never stored).
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import tempfile
from pathlib import Path
from statistics import mean
from typing import Any

from benchmarks.card import Row, fresh, row, store

SETTINGS: dict[str, Any] = {
    "model": {"embedding_dim": 200, "output_dropout": 0.5},
    "training": {"epochs": 150, "learning_rate": 0.001, "lr_decay": "cosine", "lr_lowest": 0.05},
    "acceleration": {"precision": "bf16", "num_workers": 2, "pin_memory": True, "checkpoint_every_epochs": 10},
    "evaluation": {"eval_every": 10, "metrics": ["mrr", "hits"], "top_k": [1, 3, 10]},
}
TARGETS = {"mrr": 0.325, "hits@10": 0.501}


def train_once(seed: int, device: str, settings: dict[str, Any]) -> dict[str, Any]:
    """One training; test figures at the best validation epoch."""
    from benchmarks.conve_step import typed_graph
    from graphmill.runs.resolve import merge
    from graphmill.runs.train import train

    graph = typed_graph("FB15k-237")
    with tempfile.TemporaryDirectory() as folder:
        own = {
            "recipe": "conve",
            "data": str(graph.path),
            "training": {"seed": seed},
            "acceleration": {"device": device, "allow_fallback": False},
        }
        with contextlib.redirect_stdout(sys.stderr):
            report = train(merge(settings, own), "benchmark", root=folder)
    names = ("best_epoch", "epochs_done", "wall_seconds", "seconds_per_step", "device", "precision")
    return {name: report[name] for name in names} | report["metrics"]


def rows_of(runs: list[dict[str, Any]]) -> list[Row]:
    """The rows of all seeds together."""
    workload, found = f"FB15k-237, {runs[0]['precision']}, test, {len(runs)} seeds", []
    for name, bound in TARGETS.items():
        values = [run[f"test_{name}"] for run in runs]
        note = "seeds " + ", ".join(f"{v:.4f}" for v in values)
        found.append(row(workload, name, "", mean(values), target=f"ours >= {bound}", note=note))
    epochs = ", ".join(f"{run['best_epoch']} of {run['epochs_done']}" for run in runs)
    valid = ", ".join(f"{run['valid_mrr']:.4f}" for run in runs)
    note = f"best epochs {epochs}; valid MRR {valid}; device {runs[0]['device']}"
    found.append(row(workload, "training", "s", mean(run["wall_seconds"] for run in runs), note=note))
    return found


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="write benchmarks/results/conve_quality.json")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--seeds", type=int, nargs="*", default=[0, 1, 2])
    parser.add_argument("--keep", type=Path, help="a folder for finished trainings: what is there is not trained again")
    parser.add_argument("--settings", type=Path, help="a JSON file that is merged over the settings; for trials")
    parser.add_argument("--one", type=int, metavar="SEED", help="one training in this process")
    arguments = parser.parse_args()
    if arguments.one is not None:
        from graphmill.runs.resolve import merge

        settings = SETTINGS
        if arguments.settings:
            settings = dict(merge(SETTINGS, json.loads(arguments.settings.read_text(encoding="utf-8"))))
        print(json.dumps(train_once(arguments.one, arguments.device, settings)))
        return
    runs = []
    for seed in arguments.seeds:
        file = None if arguments.keep is None else arguments.keep / f"FB15k-237-{seed}.json"
        if file is not None and file.is_file():
            runs.append(json.loads(file.read_text(encoding="utf-8")))
            continue
        runs.append(fresh("benchmarks.conve_quality", ["--device", arguments.device, "--one", str(seed)]))
        if file is not None:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(json.dumps(runs[-1]), encoding="utf-8")
    for one in rows_of(runs):
        print(json.dumps(one.__dict__, ensure_ascii=False), flush=True)
        if arguments.json:
            store("conve_quality", one, "python -m benchmarks.conve_quality --json")


if __name__ == "__main__":
    main()
