"""The queries on which versions of every system are compared: their mean is a figure that the system reports, and pairs
can be left out."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from graphmill.training.contract import StepSizes
from graphmill.usage.shared_queries import SharedQueries, all_of_them, shared_queries
from tests.training.cases import CASES, triples_graph

FIRST = {case.system: case for case in reversed(CASES.values()) if case.graph is not triples_graph}


@pytest.fixture(scope="module", params=sorted(FIRST))
def built(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[SharedQueries, Any, torch.nn.Module]:
    case = FIRST[request.param]
    folder: Path = tmp_path_factory.mktemp(case.system)
    lists = {"evaluation": {"top_k": [5, 20]}} if "top_k" in case.settings.get("evaluation", {}) else {}
    _, system = case.build(case.graph(folder / "graph"), **lists)
    return shared_queries(system.graph), system, system.build(StepSizes()).eval()


def test_the_mean_over_queries_is_the_figure_of_the_system(built: tuple[SharedQueries, Any, torch.nn.Module]) -> None:
    shared, system, model = built
    result = shared.values(system, model, all_of_them, lambda: None)
    assert (result.left_out, len(result.values) > 0) == (0, True)
    with torch.no_grad():
        figures = system.evaluate(model, "valid", final=True, poll=lambda: None)
    if system.name == "conve":  # it reports the mean over heads and tails
        return
    assert result.mean == pytest.approx(figures[shared.metric], rel=1e-9)


def test_what_is_left_out_is_not_asked_and_is_counted(built: tuple[SharedQueries, Any, torch.nn.Module]) -> None:
    shared, system, model = built

    def even_heads(relation: int, heads: np.ndarray, tails: np.ndarray) -> np.ndarray:
        return heads % 2 == 0

    whole, some = (shared.values(system, model, each, lambda: None) for each in (all_of_them, even_heads))
    assert some.left_out > 0
    assert len(some.values) < len(whole.values)
    assert set(some.units) < set(whole.units)
