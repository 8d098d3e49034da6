"""Hidden users on small graphs: folded in, they are recommended to nearly as well as after a retraining."""

from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks import fold_in
from graphmill.api import build_graph, read_interactions
from graphmill.ingest.samples import write_sample

SMALL = {"preset": "none", "acceleration": {"device": "cpu", "batch_size": 512}}


def test_factor_models_keep_four_fifths_of_the_recall(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    met = [
        (f"u{u}", f"i{i}") for u in range(300) for i in range(80) if rng.random() < (0.5 if u % 8 == i % 8 else 0.04)
    ]
    pd.DataFrame(met, columns=["user", "item"]).to_csv(tmp_path / "met.csv", index=False)
    graph = build_graph(
        read_interactions(tmp_path / "met.csv"),
        tmp_path / "graph",
        split={"method": "random", "valid": 0.1, "test": 0.2},
    )
    values = {"system": "mf", "training": {"epochs": 40}, "model": {"embedding_dim": 16}, **SMALL}
    result = fold_in.measure(graph, values, 10, tmp_path)
    assert result["users"] > 15
    assert result["ours"] >= 0.8 * result["theirs"] > 0.3


def test_a_sequence_model_keeps_four_fifths_of_the_recall(tmp_path: Path) -> None:
    graph = build_graph(read_interactions(write_sample("watch", tmp_path), "sequence"), tmp_path / "graph")
    values = {
        "system": "sasrec",
        "training": {"epochs": 12, "learning_rate": 0.005},
        "model": {"embedding_dim": 16, "max_length": 20},
        **SMALL,
        "acceleration": {**SMALL["acceleration"], "batch_size": 32},  # type: ignore[dict-item]
    }
    result = fold_in.measure(graph, values, 5, tmp_path)
    assert result["users"] > 15
    assert result["ours"] >= 0.8 * result["theirs"] > 0.2
