"""The settings files of ``examples/recommenders`` for MMGCN and DRAGON: each trains, as it is written, on a small graph."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from graphmill.worker.job import merge
from graphmill.worker.run import train
from tests.training.cases import recommender_graph

FOLDER = Path(__file__).resolve().parents[3] / "examples" / "recommenders"
RECIPES = {
    "music_baseline": "mmgcn",
    "music_fast": "mmgcn",
    "music_ours": "dragon",
    "tiktok_dragon": "dragon",
    "tiktok_mmgcn": "mmgcn",
}
COMPILED = "music_fast"


@pytest.mark.parametrize("name", RECIPES)
def test_it_trains(name: str, tmp_path: Path) -> None:
    # A compiler takes half a minute for six layers: it runs in a test of its own.
    metrics = train_example(name, tmp_path, {"acceleration": {"compile": "off"}} if name == COMPILED else {})
    assert 0.0 <= metrics["test_recall@20"] <= 1.0
    assert {"test_popularity_recall@20", "test_ease_recall@20", "test_item_knn_recall@20"} <= set(metrics)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="no C++ compiler")
def test_the_compiled_one_trains_as_written(tmp_path: Path) -> None:
    train_example(COMPILED, tmp_path, {})


def train_example(name: str, folder: Path, changes: dict[str, Any]) -> dict[str, float]:
    """The figures of a file's training, three epochs long."""
    settings = yaml.safe_load((FOLDER / f"{name}.yaml").read_text(encoding="utf-8"))
    assert settings["recipe"] == RECIPES[name]
    graph = recommender_graph(folder / "graph")
    own = {"data": str(graph.path), "training": {"epochs": 3}, "acceleration": {"threads": 1, "device": "cpu"}}
    if "modalities" in settings.get("model", {}):  # the small graph has image and text
        own["model"] = {"modalities": ["image", "text"]}
    report = train(merge(merge(settings, own), changes), name, root=str(folder / "runs"))
    assert report["epochs_done"] == 3
    metrics: dict[str, float] = report["metrics"]
    return metrics
