"""The settings files of ``examples/recommenders`` for MMGCN and DRAGON: each trains, as it is written, on a small graph."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from graphmill.errors import InputError
from graphmill.graph.typed_graph import TypedGraph
from graphmill.runs.export import restore
from graphmill.runs.resolve import merge, parse_settings, read_settings
from graphmill.runs.train import train
from tests.training.cases import recommender_graph
from tests.training.runs import Kept

FOLDER = Path(__file__).resolve().parents[3] / "examples" / "recommenders"
SYSTEMS = {
    "music_baseline": "mmgcn",
    "music_fast": "mmgcn",
    "music_ours": "dragon",
    "tiktok_mf": "mf",
    "tiktok_dragon": "dragon",
    "tiktok_dragon_identity": "dragon",
    "tiktok_mmgcn": "mmgcn",
    "tiktok_mmgcn_softmax": "mmgcn",
}
COMPILED = "music_fast"


@pytest.mark.parametrize("name", SYSTEMS)
def test_it_trains(name: str, tmp_path: Path) -> None:
    # A compiler takes half a minute for six layers: it runs in a test of its own.
    metrics = train_example(name, tmp_path, {"acceleration": {"compile": "none"}} if name == COMPILED else {})
    assert 0.0 <= metrics["test_recall@20"] <= 1.0
    assert {"test_popularity_recall@20", "test_ease_recall@20", "test_item_knn_recall@20"} <= set(metrics)


def test_dragon_with_vectors_by_id_starts_from_mf(tmp_path: Path) -> None:
    run = train_report("tiktok_mf", tmp_path, {})
    report = train_report(
        "tiktok_dragon_identity", tmp_path, {"training": {"init_from": run["run_dir"], "epochs": 1}}, 1
    )
    before, after = restore(run["run_dir"]), restore(report["run_dir"])
    start, end = before.system.vectors(before.model), after.system.vectors(after.model)
    for old, new in zip(start, end, strict=True):
        # An epoch at a small rate away, in the last columns.
        distance = (new[:, -old.shape[1] :] - old).norm() / old.norm()
        assert 0 < distance < 0.2
    with pytest.raises(InputError, match="nothing in common"):
        train_report("music_baseline", tmp_path, {"training": {"init_from": run["run_dir"]}})


def test_gradient_checkpointing_without_layers_is_said_to_change_nothing(tmp_path: Path) -> None:
    graph, outlet = recommender_graph(tmp_path / "graph"), Kept()
    values = {"system": "mf", "data": str(graph.path), "training": {"epochs": 1}}
    train(values | {"acceleration": {"gradient_checkpointing": True}}, "test", root=str(tmp_path), outlets=[outlet])
    assert "gradient_checkpointing changes nothing" in " ".join(outlet.notes)


@pytest.mark.long  # a compiled run is in tests/training/test_golden.py
@pytest.mark.skipif(shutil.which("g++") is None, reason="no C++ compiler")
def test_the_compiled_one_trains_as_written(tmp_path: Path) -> None:
    report = train_report(COMPILED, tmp_path, {})
    assert report["compile"]["mode"] == "reduce-overhead"
    assert report["compile"]["graphs"] > 0


def train_example(name: str, folder: Path, changes: dict[str, Any]) -> dict[str, float]:
    """The figures of a file's training, three epochs long."""
    metrics: dict[str, float] = train_report(name, folder, changes)["metrics"]
    return metrics


def train_report(name: str, folder: Path, changes: dict[str, Any], epochs: int = 3) -> dict[str, Any]:
    settings = yaml.safe_load((FOLDER / f"{name}.yaml").read_text(encoding="utf-8"))
    assert settings["system"] == SYSTEMS[name]
    graph = TypedGraph.open(folder / "graph") if (folder / "graph").exists() else recommender_graph(folder / "graph")
    values = {"data": str(graph.path), "training": {"epochs": 3}, "acceleration": {"device": "cpu"}}
    if "modalities" in settings.get("model", {}):  # the small graph has image and text
        values["model"] = {"modalities": ["image", "text"]}
    report = train(merge(merge(settings, values), changes), name, root=str(folder / "runs"))
    assert report["epochs_done"] == epochs
    return report


@pytest.mark.parametrize("name", ["music_baseline", "music_fast"])
def test_the_files_of_the_acceleration_study_end_as_mmrec_does(name: str) -> None:
    """After 20 evaluations without a better one, however many epochs lie between them."""
    settings: Any = parse_settings(read_settings(FOLDER / f"{name}.yaml"), name)
    assert settings.training.patience_epochs == 20 * settings.evaluation.eval_every
    assert settings.evaluation.selection_metric == "recall@20"
