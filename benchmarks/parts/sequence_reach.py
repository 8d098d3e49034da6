"""Training time to a full-ranking NDCG@10: our SASRec beside RecBole's, on the validation targets of ml-latest-small.

``python -m benchmarks.sequence_quality recbole --json --rival-python /path/to/python`` (an interpreter that has RecBole
1.2.1 and ray). The rival trains for ``--minutes`` and is asked after every epoch; ours until it has what the rival had at
best, asked as often. Time is that of the processor on one thread, so that other work on the machine disturbs it little;
the rival's evaluations are not counted, ours are. Both have the allocator that keeps its heap; leave-one-out; every item
is ranked but those of the user's history. The rival's settings are its own for SASRec (two layers, two heads, 64 wide,
inner 256, cross-entropy, batch 2,048), length 50; ours has the settings of ``sequence_quality``.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.parts.card import ROOT, row, store
from benchmarks.parts.recommender_data import data_file

os.environ.setdefault("OMP_NUM_THREADS", "1")  # all its figures are of one thread


LENGTH = 50
Look = tuple[float, float]


class _EnoughError(Exception):
    """The training has got there, or its time is over."""


def sequences() -> list[list[int]]:
    """Items of each user from 1 on, in order of time, ties in the file's order."""
    import gzip

    with gzip.open(data_file("movies"), "rt", encoding="utf-8") as file:
        lines = [line.split() for line in file]
    results: dict[str, list[tuple[float, int]]] = {}
    for user, item, *_, when in lines:
        results.setdefault(user, []).append((float(when), int(item)))
    return [[item for _, item in sorted(rows, key=lambda r: r[0])] for rows in results.values()]


def ndcg(scores: np.ndarray, histories: list[list[int]], targets: list[int]) -> float:
    """Mean NDCG@10 over users; ``scores`` [U, I]: by item number. An equal score counts as half above."""
    total = 0.0
    for line, history, target in zip(scores, histories, targets, strict=True):
        line = line.astype(np.float64)
        graphmill_value = line[target]
        line[[h for h in history if h != target]] = -np.inf
        rank = (line > graphmill_value).sum() + 0.5 * ((line == graphmill_value).sum() - 1)
        total += float(rank < 10) / np.log2(rank + 2)
    return total / len(targets)


# ---------------------------------------------------------------------- the rival


def rival(minutes: float) -> dict[str, Any]:
    """RecBole's SASRec by RecBole's own trainer; [seconds, NDCG@10 on validation] after every epoch."""
    for old, new in (("float_", np.float64), ("complex_", np.complex128), ("unicode_", np.str_), ("bool8", np.bool_)):
        if not hasattr(np, old):
            setattr(np, old, new)  # RecBole 1.2.1 was written for numpy 1
    import torch
    from recbole.config import Config
    from recbole.data import create_dataset, data_preparation
    from recbole.data.interaction import Interaction
    from recbole.model.sequential_recommender import SASRec
    from recbole.trainer import Trainer
    from recbole.utils import init_seed

    torch.set_num_threads(1)
    whole = sequences()
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "movies"
        target.mkdir()
        with (target / "movies.inter").open("w", encoding="utf-8") as file:
            file.write("user_id:token\titem_id:token\ttimestamp:float\n")
            for user, items in enumerate(whole):
                file.writelines(f"{user}\t{item}\t{place}\n" for place, item in enumerate(items))
        settings = {
            "data_path": folder,
            "checkpoint_dir": folder,
            "load_col": {"inter": ["user_id", "item_id", "timestamp"]},
            "user_inter_num_interval": "[0,inf)",
            "item_inter_num_interval": "[0,inf)",
            "MAX_ITEM_LIST_LENGTH": LENGTH,
            "train_neg_sample_args": None,
            "loss_type": "CE",
            "eval_args": {"split": {"LS": "valid_and_test"}, "order": "TO", "mode": "full", "group_by": "user"},
            "train_batch_size": 2048,
            "use_gpu": False,
            "show_progress": False,
            "save_dataset": False,
        }
        sys.argv = sys.argv[:1]  # RecBole reads the command line
        config = Config(model="SASRec", dataset="movies", config_dict=settings)
        init_seed(config["seed"], config["reproducibility"])
        dataset = create_dataset(config)
        train, _, _ = data_preparation(config, dataset)
        model = SASRec(config, train.dataset).to(config["device"])
        trainer = Trainer(config, model)
        numbers = dataset.field2token_id["item_id"]
        order = np.array([numbers.get(str(item), 0) for item in range(max(map(max, whole)) + 1)])
        wanted = [items for items in whole if len(items) >= 3]
        histories = [items[:-2] for items in wanted]
        rows = torch.zeros(len(wanted), LENGTH, dtype=torch.int64)
        for place, items in enumerate(histories):
            last = [int(order[i]) for i in items[-LENGTH:]]
            rows[place, : len(last)] = torch.tensor(last)
        lengths = torch.tensor([min(len(items), LENGTH) for items in histories])

        def look() -> float:
            model.eval()
            with torch.no_grad():
                scores = model.full_sort_predict(Interaction({"item_id_list": rows, "item_length": lengths})).numpy()
            results = scores[:, order]
            results[:, order == 0] = -np.inf
            return ndcg(results, histories, [items[-2] for items in wanted])

        looks: list[Look] = []
        seconds, epoch = 0.0, 0
        while seconds < 60 * minutes:
            started = time.process_time()
            trainer._train_epoch(train, epoch, show_progress=False)
            seconds, epoch = seconds + time.process_time() - started, epoch + 1
            looks.append((seconds, look()))
            print(epoch, *looks[-1], file=sys.stderr, flush=True)
    return {"looks": looks, "best": max(n for _, n in looks), "users": len(wanted)}


# ---------------------------------------------------------------------- ours


def ours(target: float, minutes: float) -> dict[str, Any]:
    """Our engine's loop with the settings of ``sequence_quality``, asked after every epoch until ``target``."""
    import torch

    from benchmarks.sequence_quality import SETTINGS
    from graphmill.graph.build import build_graph
    from graphmill.graph.settings import GraphSettings
    from graphmill.ingest.interactions_csv import read_sequence
    from graphmill.runs.resolve import merge, resolve
    from graphmill.systems import registry
    from graphmill.training.contract import StepSizes
    from graphmill.training.engine import Engine
    from graphmill.training.reporting import TrainingListener

    looks: list[Look] = []

    class Watch(TrainingListener):
        """Stops the training when it has got there."""

        def on_epoch(self, record: dict[str, Any]) -> None:
            looks.append((time.process_time() - began, record["valid"]["ndcg@10"]))
            print(len(looks), *looks[-1], file=sys.stderr, flush=True)
            if looks[-1][1] >= target or looks[-1][0] >= 60 * minutes:
                raise _EnoughError

    torch.set_num_threads(1)
    whole = sequences()
    with tempfile.TemporaryDirectory() as folder:
        tables = read_sequence(data_file("movies"))
        graph = build_graph(tables.nodes, tables.edges, GraphSettings(add_reverse="never"), Path(folder) / "graph")
        values = {
            "system": "sasrec",
            "data": str(graph.path),
            "model": {"max_length": LENGTH},
            "training": {"epochs": 1000, "patience_epochs": 0},
            "acceleration": {"device": "cpu"},
            "evaluation": {"eval_every": 1},
        }
        job = resolve(merge(SETTINGS["movies"], values), "benchmark")
        system: Any = registry.create("sasrec", graph, job.settings, job.batching)
        s = job.settings
        engine = Engine(
            system, s.training, s.acceleration, s.evaluation, device=torch.device("cpu"), precision="fp32",
            step_sizes=StepSizes(), listener=Watch(),
        )  # fmt: skip
        data = system.data.sequences
        items = np.array(
            [int(i) for i in graph.node_table().column("id").to_pylist()[data.item_offset :][: data.num_items]]
        )
        split = system.evaluator.split("valid")
        histories = [items[data.items[a:b]].tolist() for a, b in zip(split.start, split.stop, strict=True)]
        targets = items[split.targets].tolist()
        expected = sorted((u[:-2], u[-2]) for u in whole if len(u) >= 3)
        assert sorted(zip(histories, targets, strict=True)) == expected, "not the same validation targets"
        began = time.process_time()
        with contextlib.suppress(_EnoughError):
            engine.fit()
        engine.model.eval()
        with torch.no_grad():
            network: Any = engine.model.network
            scores = (system.all_states(engine.model, split.users, split.stop) @ network.items.weight.T).numpy()
        by_number = np.full((len(scores), items.max() + 1), -np.inf, dtype=np.float32)
        by_number[:, items] = scores
        assert abs(ndcg(by_number, histories, targets) - looks[-1][1]) < 1e-4, "not the rival's measure"
    return {"looks": looks, "users": len(targets)}


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="write benchmarks/results/sequence_reach.json")
    parser.add_argument("--rival-python", default=sys.executable, help="an interpreter that has RecBole")
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--one", choices=["ours", "rival"], help="one side in this process")
    parser.add_argument("--target", type=float, default=0.0)
    args = parser.parse_args()
    if args.one:
        results = rival(args.minutes) if args.one == "rival" else ours(args.target, args.minutes)
        print(json.dumps(results))
        return
    theirs = _run(args, args.rival_python, "--one", "rival")
    mine = _run(args, sys.executable, "--one", "ours", "--target", str(theirs["best"]))
    at = next(seconds for seconds, value in theirs["looks"] if value == theirs["best"])
    reached, (seconds, value) = mine["looks"][-1][1] >= theirs["best"], mine["looks"][-1]
    note = (
        f"valid NDCG@10 of {mine['users']} users, all items: RecBole's best {theirs['best']:.4f} after {at:.0f} s, the end "
        f"{theirs['looks'][-1][1]:.4f} after {theirs['looks'][-1][0]:.0f} s and {len(theirs['looks'])} epochs; ours "
        f"{value:.4f} after {len(mine['looks'])} epochs{'' if reached else ' (NOT reached)'}"
    )
    result = row(
        "movies sasrec", "training to the rival's best NDCG@10", "CPU s", seconds if reached else float("inf"),
        rival="RecBole 1.2.1", theirs=at, target="ratio <= 0.1", note=note,
    )  # fmt: skip
    print(json.dumps(result.__dict__, ensure_ascii=False))
    if args.json:
        store("sequence_reach", result, "python -m benchmarks.sequence_quality recbole --json")


def _run(args: argparse.Namespace, python: str, *more: str) -> dict[str, Any]:
    from graphmill.training.allocator import KEEP_HEAP, waiting_environment

    environment = {
        **waiting_environment(), **os.environ, **KEEP_HEAP, "OMP_NUM_THREADS": "1",
        "PYTHONPATH": f"{ROOT}:{ROOT / 'src'}", "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD": "1",
    }  # fmt: skip
    command = [
        python, "-m", "benchmarks.parts.sequence_reach", "--minutes", str(args.minutes), *more,
    ]  # fmt: skip
    finished = subprocess.run(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    result: dict[str, Any] = json.loads(finished.stdout.strip().splitlines()[-1])
    return result


if __name__ == "__main__":
    main()
