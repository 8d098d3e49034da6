"""Per-query figures of every system: their mean is the figure that the system reports, and pairs can be left out."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from graphmill.errors import InputError
from graphmill.promotion.compare import check_metric, query_values
from graphmill.training.contract import StepSizes
from tests.training.cases import CASES, Case


def keep_all(relation: int, heads: np.ndarray, tails: np.ndarray) -> np.ndarray:
    return np.zeros(len(heads), bool)


FIRST = {case.system: case for case in reversed(CASES.values())}


@pytest.fixture(scope="module", params=sorted(FIRST))
def built(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Case, Any, torch.nn.Module]:
    case = FIRST[request.param]
    folder: Path = tmp_path_factory.mktemp(case.system)
    _, system = case.build(case.graph(folder / "graph"))
    return case, system, system.build(StepSizes()).eval()


def test_the_mean_over_queries_is_the_figure_of_the_system(built: tuple[Case, Any, torch.nn.Module]) -> None:
    _, system, model = built
    metric = system.settings.evaluation.selection_metric
    found = query_values(system, model, keep_all, split="valid", metric=metric)
    with torch.no_grad():
        expected = system.evaluate(model, "valid", final=True, poll=lambda: None)
    assert found.mean == pytest.approx(expected[metric], rel=1e-9)
    assert found.left_out == 0


def test_what_is_left_out_is_not_asked_and_is_counted(built: tuple[Case, Any, torch.nn.Module]) -> None:
    _, system, model = built
    metric = system.settings.evaluation.selection_metric
    whole = query_values(system, model, keep_all, split="valid", metric=metric)

    def every_other_head(relation: int, heads: np.ndarray, tails: np.ndarray) -> np.ndarray:
        return heads % 2 == 0

    some = query_values(system, model, every_other_head, split="valid", metric=metric)
    assert some.left_out > 0
    assert len(some.values) < len(whole.values)
    assert set(some.units) < set(whole.units)


def test_a_metric_that_has_no_figure_for_each_query_is_a_sentence(built: tuple[Case, Any, torch.nn.Module]) -> None:
    _, system, _ = built
    for metric in ("auc", "recall@0", "mrr@", "amri"):
        with pytest.raises(InputError, match=f"metric '{metric}' is not measured for each query; "):
            check_metric(system, metric)
