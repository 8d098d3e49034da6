"""Graphs are built once per session; cases come from cases.py."""

from pathlib import Path

import pytest

from graphmill.graph.typed_graph import TypedGraph
from tests.training.cases import CASES, STEPPED, Case


@pytest.fixture(scope="session")
def graphs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, TypedGraph]:
    """Case name → its graph, built when first asked for."""

    class Lazy(dict[str, TypedGraph]):
        def __missing__(self, name: str) -> TypedGraph:
            make = CASES[name].graph
            folder = tmp_path_factory.getbasetemp() / f"graph-{make.__module__}-{make.__name__}"
            self[name] = make(Path(folder))
            return self[name]

    return Lazy()


@pytest.fixture(params=list(STEPPED))
def case(request: pytest.FixtureRequest, graphs: dict[str, TypedGraph]) -> tuple[Case, TypedGraph]:
    """Every case in turn, with its graph."""
    return CASES[request.param], graphs[request.param]
