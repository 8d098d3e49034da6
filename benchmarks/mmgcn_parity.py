"""``python -m benchmarks.mmgcn_parity --json``: MMGCN on tiktok from the numbers that the public implementation starts from.

As published, tables of preferences and ID embeddings stay as they were drawn, and the seed moves recall by a third. So the
recorded figures of the public implementation (one seed, 999) say something of another implementation only where it starts
from the same numbers. They are drawn here from torch's generator in the order in which that implementation makes its tables
and layers; the order of pairs and the negatives are our own, of three seeds. Two rates, the best epoch by validation, fresh
processes of one thread.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import mean
from typing import Any
from unittest import mock

import torch
import yaml
from torch import Tensor, nn

from benchmarks.card import ROOT, Row, fresh, row, store
from graphmill.systems.mmgcn.model import MMGCN, Layer
from graphmill.training.device import allowed_cores

PUBLIC_SEED = 999
RECORDED = {0.0005: (0.0886, 0.0854), 0.0001: (0.0883, 0.0823)}
"""Rate to the public implementation's best validation Recall@20 and test Recall@20 there."""
SEEDS = (0, 1, 2)


def draw_public_start(model: MMGCN, seed: int) -> None:
    """Fill tables and layers with what the public implementation's constructor draws after ``torch.manual_seed(seed)``.

    Modality by modality: preferences; the map of the features where there is one; for each of three layers the message's
    matrix, the rows' own map and the joint map; the ID embeddings last. A table is drawn uniformly before it is drawn
    from Xavier's normal distribution, and a matrix that leads to messages as well, so that the generator moves on.
    """
    torch.manual_seed(seed)
    with torch.no_grad():
        for tower in model.towers:
            assert isinstance(tower.preference, Tensor)
            assert isinstance(tower.layers, nn.ModuleList)
            tower.preference.copy_(_table(tower.preference))
            if isinstance(tower.projection, nn.Linear):
                tower.projection.load_state_dict(_linear(tower.projection, normal=False).state_dict())
            for number, layer in enumerate(tower.layers):
                assert isinstance(layer, Layer)
                layer.message.copy_(_table(layer.message))
                layer.own.load_state_dict(_linear(layer.own, normal=True).state_dict())
                layer.joint.load_state_dict(_linear(layer.joint, normal=number == 0).state_dict())
        model.identity.copy_(_table(model.identity))


def _table(like: Tensor) -> Tensor:
    return nn.init.xavier_normal_(torch.rand(like.shape))


def _linear(like: nn.Linear, normal: bool) -> nn.Linear:
    made = nn.Linear(like.in_features, like.out_features)
    if normal:
        nn.init.xavier_normal_(made.weight)
    return made


def train_once(seed: int, rate: float) -> dict[str, float]:
    """One training; valid and test figures at its best epoch."""
    from benchmarks.recommender_data import root
    from graphmill.graph.build import build_graph
    from graphmill.graph.settings import GraphSettings
    from graphmill.ingest.mmrec import read_mmrec
    from graphmill.runs.resolve import merge
    from graphmill.runs.train import train
    from graphmill.systems.mmgcn import recipe

    class FromPublicStart(recipe.MmgcnRecipe):
        def make_model(self) -> MMGCN:
            model = super().make_model()
            draw_public_start(model, PUBLIC_SEED)
            return model

    example = ROOT / "examples" / "recommenders" / "tiktok_mmgcn.yaml"
    settings = yaml.safe_load(example.read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory() as folder, mock.patch.object(recipe, "MmgcnRecipe", FromPublicStart):
        tables = read_mmrec(root() / "tiktok")
        graph = Path(folder) / "graph"
        build_graph(tables.nodes, tables.edges, GraphSettings(add_reverse="never"), graph, tables.features)
        own = {
            "data": str(graph),
            "training": {"seed": seed, "learning_rate": rate},
            "acceleration": {"device": "cpu", "threads": 1},
            "evaluation": {"baselines": []},
        }
        with contextlib.redirect_stdout(sys.stderr):
            report = train(merge(settings, own), "benchmark", root=str(Path(folder) / "runs"))
    return {"best_epoch": report["best_epoch"], **report["metrics"]}


def rows() -> Iterator[Row]:
    """Per rate and split ours, a mean over seeds, beside the public implementation's as recorded."""
    cells = [(rate, seed) for rate in RECORDED for seed in SEEDS]

    def one(cell: tuple[float, int]) -> dict[str, Any]:
        return fresh("benchmarks.mmgcn_parity", ["--one", "--rate", str(cell[0]), "--seed", str(cell[1])])

    with ThreadPoolExecutor(min(2, allowed_cores())) as pool:
        results = dict(zip(cells, pool.map(one, cells), strict=True))
    for rate, recorded in RECORDED.items():
        runs = [results[rate, seed] for seed in SEEDS]
        for split, theirs in zip(("valid", "test"), recorded, strict=True):
            found = [run[f"{split}_recall@20"] for run in runs]
            epochs = ", ".join(str(run["best_epoch"]) for run in runs)
            note = f"each {', '.join(f'{x:.4f}' for x in found)}; best epochs {epochs}"
            note += f"; ndcg@20 {mean(run[f'{split}_ndcg@20'] for run in runs):.4f}"
            name = f"tiktok mmgcn, rate {rate}, the public seed's tables, {split}"
            yield row(
                name, "recall@20", "", mean(found), rival="public implementation, recorded", theirs=theirs, note=note
            )


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="write benchmarks/results/mmgcn_parity.json")
    parser.add_argument("--one", action="store_true", help="one training in this process")
    parser.add_argument("--rate", type=float, default=0.0005)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(train_once(arguments.seed, arguments.rate)))
        return
    for found in rows():
        print(f"{found.workload:60} {found.ours:.4f} {found.theirs or 0:.4f} {found.note}")
        if arguments.json:
            store("mmgcn_parity", found, "python -m benchmarks.mmgcn_parity --json")


if __name__ == "__main__":
    main()
