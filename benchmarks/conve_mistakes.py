"""Planted mistakes and leave-k-out retraining on UMLS: does influence point at the triples that matter?"""

from __future__ import annotations

import random
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

SETTINGS: dict[str, Any] = {
    "recipe": "conve",
    "preset": "none",
    "acceleration": {"keep_influence": 5},
    "evaluation": {"eval_every": 20},
}


def self_influence_auc(*, epochs: int = 60, share: float = 0.05, seed: int = 0) -> dict[str, Any]:
    """AUC of self-influence for training triples whose tail was replaced by a random entity."""
    from graphmill.evaluation.ranking.negatives import auc
    from graphmill.influence.settings import InfluenceSettings
    from graphmill.runs.influence import trace_influence

    splits = _splits()
    rng = random.Random(seed)
    entities = sorted(
        {t[0] for part in splits.values() for t in part} | {t[2] for part in splits.values() for t in part}
    )
    known = {t for part in splits.values() for t in part}
    wrong = set()
    for place in rng.sample(range(len(splits["train"])), round(share * len(splits["train"]))):
        head, relation, _ = splits["train"][place]
        while (triple := (head, relation, rng.choice(entities))) in known:
            pass
        known.add(triple)
        wrong.add(triple)
        splits["train"][place] = triple
    with tempfile.TemporaryDirectory() as folder:
        run = _train(splits, Path(folder), epochs)
        count = len(splits["train"])
        found = trace_influence(run["run_dir"], InfluenceSettings(mode="self", top_k=count))
    values = {(r["train_head"], r["train_relation"], r["train_tail"]): r["self_influence"] for r in found["results"]}
    planted = np.array([values[t] for t in wrong])
    sound = np.array([v for t, v in values.items() if t not in wrong])
    chosen = ", ".join(str(c["epoch"]) for c in found["checkpoints"])
    return {"auc": auc(planted, sound), "note": f"{len(wrong)} of {count} wrong; {epochs} epochs, checkpoints {chosen}"}


def removal_agreement(*, epochs: int = 40, groups: int = 8, removed: int = 50, seed: int = 0) -> dict[str, Any]:
    """Spearman of a group's summed influence on the test set and the rise of test loss when training leaves it out."""
    from scipy.stats import spearmanr

    from graphmill.influence.tracin import Request, influence
    from graphmill.runs.export import restore
    from graphmill.runs.influence import traced_checkpoints

    splits = _splits()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        base = restore(_train(splits, folder / "base", epochs)["run_dir"])
        recipe: Any = base.recipe
        test = recipe.traced_triples("test")[:200]
        before = _test_loss(base, test)  # tracing replaces the weights
        total = influence(recipe, traced_checkpoints(base, 5), recipe.traced_triples("train"), test, Request()).sum(0)
        order = np.argsort(total)
        # From the strongest opponents to the strongest proponents, evenly.
        starts = np.linspace(0, len(order) - removed, groups).astype(int)
        ids = base.graph.node_table().column("id").to_pylist()
        names = [r.name for r in base.graph.relations]
        triples = [(ids[h], names[r], ids[t]) for h, r, t in recipe.traced_triples("train").tolist()]
        predicted, seen = [], []
        for number, start in enumerate(starts):
            gone = {triples[i] for i in order[start : start + removed].tolist()}
            fewer = splits | {"train": [t for t in splits["train"] if t not in gone]}
            again = restore(_train(fewer, folder / str(number), epochs, ids)["run_dir"])
            predicted.append(float(total[order[start : start + removed]].sum()))
            seen.append(_test_loss(again, test) - before)
    found = spearmanr(predicted, seen)
    return {"spearman": float(found.statistic), "note": f"{groups} groups of {removed}, {epochs} epochs, one seed"}


def _test_loss(restored: Any, test: np.ndarray) -> float:
    """Mean of softplus(s) − one · s over the test labels, both directions."""
    import torch

    labels = restored.recipe.traced_labels(test).reshape(-1, 3)
    with torch.no_grad():
        h, r, t = (torch.from_numpy(labels[:, i].copy()) for i in range(3))
        scores = restored.model.pair_scores(restored.model(h, r), t[:, None])[:, 0]
        return float((torch.nn.functional.softplus(scores) - restored.recipe.targets[0] * scores).mean())


def _splits() -> dict[str, list[tuple[str, ...]]]:
    import gzip

    from benchmarks.conve_step import data_folder

    found = {}
    for split in ("train", "valid", "test"):
        with gzip.open(data_folder("UMLS") / f"{split}.txt.gz", "rt", encoding="utf-8") as file:
            found[split] = [tuple(line.split()) for line in file]
    return found


def _train(splits: dict[str, Any], folder: Path, epochs: int, ids: list[str] | None = None) -> dict[str, Any]:
    from graphmill.graph.build import build_graph
    from graphmill.graph.settings import GraphSettings
    from graphmill.ingest.triples import read_triples
    from graphmill.runs.train import train

    folder.mkdir(parents=True, exist_ok=True)
    for split, triples in splits.items():
        (folder / f"{split}.txt").write_text("".join("\t".join(t) + "\n" for t in triples), encoding="utf-8")
    if ids is not None:
        # The same numbers as before something was left out, so that the same seed gives the same start.
        (folder / "node_dict.txt").write_text("".join(f"{n}\t{i}\n" for i, n in enumerate(ids)), encoding="utf-8")
        relations = list(dict.fromkeys(t[1] for t in _splits()["train"]))
        (folder / "rel_dict.txt").write_text("".join(f"{n}\t{i}\n" for i, n in enumerate(relations)), encoding="utf-8")
    tables = read_triples(folder)
    graph = build_graph(tables.nodes, tables.edges, GraphSettings(add_reverse="never"), folder / "graph")
    values = SETTINGS | {"data": str(graph.path), "training": {"epochs": epochs}}
    return train(values, "benchmark", root=str(folder / "runs"))
