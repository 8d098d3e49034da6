"""Matrix factorisation as a baseline: how long it may take, and what is reused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graphmill.errors import InputError
from graphmill.graph.typed_graph import TypedGraph
from graphmill.runs.resolve import parse_settings
from graphmill.usage import baselines as recommender_baseline
from graphmill.usage.baselines import train_mf
from tests.graph.test_interactions import Triple, built

USERS, ITEMS = 600, 24


def taste(held_out: int) -> list[Triple]:
    """Users of four kinds, each with five of the six items of its kind; the last one is in the split ``held_out``."""
    rng, out = np.random.default_rng(0), []
    for user in range(USERS):
        taken = rng.permutation(np.arange(user % 4, ITEMS, 4))[:5]
        out += [(user, int(item), 0) for item in taken[:4]] + [(user, int(taken[4]), held_out)]
    return out


def baseline(graph: TypedGraph, folder: Path, pairs: int = 2400, **evaluation: Any) -> dict[str, Any]:
    values = {
        "system": "lightgcn",
        "data": str(graph.path),
        "preset": "none",
        "acceleration": {"device": "cpu"},
        "evaluation": {"top_k": [5], "selection_metric": "recall@5"} | evaluation,
    }
    return train_mf(parse_settings(values, "test"), pairs, folder)


def test_it_is_trained_by_its_defaults_and_found_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recommender_baseline, "LARGEST_WORK", 2400 * 40)
    graph = built(tmp_path / "graph", taste(1), USERS, ITEMS)
    first = baseline(graph, tmp_path / "baseline")
    assert first["epochs_done"] <= 40
    assert first["best_metric"] > 0.8
    again = baseline(graph, tmp_path / "baseline")
    assert (again["reused"], again["run_dir"]) == (True, first["run_dir"])
    other = baseline(graph, tmp_path / "baseline", selection_metric="ndcg@5")
    assert other["run_dir"] != first["run_dir"], "another metric chooses another epoch"


def test_large_data_get_fewer_epochs_and_no_data_too_few(tmp_path: Path) -> None:
    graph = built(tmp_path / "graph", taste(2), USERS, ITEMS)
    assert baseline(graph, tmp_path / "baseline", 10**9)["epochs_done"] == recommender_baseline.LEAST_EPOCHS


def test_a_metric_that_looks_at_more_items_than_there_are_is_refused(tmp_path: Path) -> None:
    graph = built(tmp_path / "graph", taste(2), USERS, ITEMS)
    with pytest.raises(
        InputError, match=rf"recall@{ITEMS + 5} looks at more items than the {ITEMS} of .* evaluation.top_k"
    ):
        baseline(graph, tmp_path / "baseline", top_k=[ITEMS + 5], selection_metric=f"recall@{ITEMS + 5}")
