"""A folder with a tiny graph and runs of HGT without layers on it, as a project has them."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from graphmill.runs.export import export_run, restore
from graphmill.runs.resolve import merge
from graphmill.runs.train import train
from tests.training.cases import CASES, typed_graph
from tests.training.runs import settings_of

TrainRun = Callable[..., Path]


@pytest.fixture(scope="module", autouse=True)
def _all_runs_are_kept() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("graphmill.runs.train.KEEP_RUNS", 20)
        yield


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``data/06_models``, with the graph of ``toy``."""
    folder = tmp_path_factory.mktemp("project") / "data" / "06_models"
    typed_graph(folder / "toy" / "graph")
    return folder


@pytest.fixture(scope="module")
def trained(outputs: Path) -> TrainRun:
    """Trains and exports ``toy/hgt``; takes sections of settings, and the graph's folder."""
    from graphmill.graph.typed_graph import TypedGraph

    def run(graph: str = "graph", **sections: Any) -> Path:
        case = CASES["hgt-full"]
        values = settings_of(case, TypedGraph.open(outputs / "toy" / graph))
        values = merge(merge(values, {"export": {"csv": False}}), sections)
        path = train(values, "test", root=str(outputs / "toy" / "hgt"))["run_dir"]
        export_run(restore(path))
        return Path(path)

    return run
