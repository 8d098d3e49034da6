"""The settings files of ``examples/recommenders`` for the music sample: each trains and is measured on that sample, for two
epochs in place of its own number, and starts from another's run where its comment says so.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from graphmill.graph.typed_graph import TypedGraph
from graphmill.runs.export import restore
from graphmill.runs.resolve import merge
from graphmill.runs.train import train
from graphmill.training.contract import StepSizes
from graphmill.training.run_directory import RunDirectory
from tests.systems.recommenders.music import music_graph

FOLDER = Path(__file__).resolve().parents[3] / "examples" / "recommenders"
NAMES = sorted(path.stem for path in FOLDER.glob("music_*.yaml"))
EPOCHS = 2
# Where a compiler takes half a minute: it runs in a test of its own (test_multimodal_examples.py).
NOT_COMPILED = {"acceleration": {"compile": "none"}}
STARTS = {"music_kgat": "music_mf"}
"""Whose run a file's comment says that it can start from."""


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory, repository: Path) -> TypedGraph:
    return music_graph(repository, tmp_path_factory.mktemp("music") / "graph")


def trained(name: str, graph: TypedGraph, root: Path, **training: Any) -> dict[str, Any]:
    """The report of a file's training, two epochs long."""
    values = yaml.safe_load((FOLDER / f"{name}.yaml").read_text(encoding="utf-8"))
    short = {"data": str(graph.path), "training": {"epochs": EPOCHS, **training}, "acceleration": {"device": "cpu"}}
    return train(merge(merge(values, short), NOT_COMPILED), name, root=str(root))


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_it_trains_and_is_measured_on_the_sample(name: str, graph: TypedGraph, tmp_path: Path) -> None:
    start: dict[str, Any] = {}
    if name in STARTS:
        start["init_from"] = trained(STARTS[name], graph, tmp_path / "start")["run_dir"]
    report = trained(name, graph, tmp_path / "runs", **start)
    assert report["epochs_done"] == EPOCHS
    # All 400 listeners and 240 tracks have a vector to start from.
    log = "".join(path.read_text(encoding="utf-8") for path in Path(report["run_dir"]).rglob("train.log"))
    assert ("init_from: 640 of" in log) == bool(start)
    first, last = RunDirectory(report["run_dir"]).metrics.read("epoch")
    for loss in [name for name in first["losses"] if name.endswith("total")]:
        assert last["losses"][loss] < first["losses"][loss], "it learns"
    after = restore(report["run_dir"])
    before = dict(after.system.build(StepSizes()).named_parameters())
    assert not [part for part, value in after.model.named_parameters() if torch.equal(value, before[part])]
    # What the file asks for is measured: on validation items at the last epoch, on test items afterwards, beside baselines.
    request = yaml.safe_load((FOLDER / f"{name}.yaml").read_text(encoding="utf-8"))["evaluation"]
    figures = [f"{m}@{k}" for m in request.get("metrics", ["recall", "ndcg"]) for k in request.get("top_k", [20])]
    assert set(last["valid"]) == set(figures)
    for figure in figures:
        assert 0.0 < report["metrics"][f"test_{figure}"] < 1.0
        for baseline in ("popularity", "ease", "item_knn"):
            assert 0.0 < report["metrics"][f"test_{baseline}_{figure}"] < 1.0
