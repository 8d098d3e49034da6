"""The settings files of ``examples/recommenders`` for MF, LightGCN and KGAT: each trains as it is written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from graphmill.runs.resolve import merge
from graphmill.runs.train import train
from tests.training.cases import recommender_graph

FOLDER = Path(__file__).resolve().parents[3] / "examples" / "recommenders"
SYSTEMS = ("mf", "lightgcn", "kgat")
NAMES = sorted(p.stem for p in FOLDER.glob("*.yaml") if yaml.safe_load(p.read_text())["system"] in SYSTEMS)


def test_kgat_of_last_fm_is_the_one_that_the_benchmark_measures() -> None:
    """Its figures stand in benchmarks/LOG_2026.md."""
    from benchmarks.recommenders import EPOCHS, OWN, START, STARTS

    start, kgat = (yaml.safe_load((FOLDER / f"last_fm_{name}.yaml").read_text()) for name in ("mf_bpr", "kgat"))
    assert (start["objective"], start["training"]["epochs"]) == (START, EPOCHS)
    measured = OWN["tuned, masked"]
    assert {part: kgat[part] for part in ("model", "objective")} == {p: measured[p] for p in ("model", "objective")}
    assert measured["training"].items() <= kgat["training"].items()
    names = ("mf", "kgat_softmax")
    start, kgat = (yaml.safe_load((FOLDER / f"last_fm_{name}.yaml").read_text()) for name in names)
    wanted, measured = STARTS["softmax, short layers"], OWN["softmax, short layers"]
    assert (start["objective"], start["training"]["epochs"]) == (wanted["objective"], wanted["epochs"])
    assert {part: kgat[part] for part in ("model", "objective")} == {p: measured[p] for p in ("model", "objective")}
    assert kgat["training"] == measured["training"] | {"patience_epochs": 0}


@pytest.mark.parametrize("name", NAMES)
def test_it_trains(name: str, tmp_path: Path) -> None:
    values = yaml.safe_load((FOLDER / f"{name}.yaml").read_text(encoding="utf-8"))
    graph = recommender_graph(tmp_path / "graph")
    # As it is written, but for the length, and for more cut-offs than this graph has items.
    changes: dict[str, Any] = {"data": str(graph.path), "training": {"epochs": 2}, "acceleration": {"device": "cpu"}}
    if values.get("objective", {}).get(
        "mask_pairs"
    ):  # a step of the file's size would leave out more pairs than there are
        changes["acceleration"]["batch_size"] = 50
    result = train(merge(values, changes), name, root=str(tmp_path / "runs"))
    assert result["epochs_done"] == 2
    assert 0.0 <= result["metrics"]["test_recall@20"] <= 1.0
    assert {"test_popularity_recall@20", "test_ease_recall@20", "test_item_knn_recall@20"} <= set(result["metrics"])
