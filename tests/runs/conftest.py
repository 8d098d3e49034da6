"""One tiny graph and a settings file on it, for tests that start real processes."""

from typing import Any

import pytest

from graphmill.graph.typed_graph import TypedGraph
from tests.training.cases import CASES, typed_graph
from tests.training.runs import settings_of


@pytest.fixture(scope="session")
def graph(tmp_path_factory: pytest.TempPathFactory) -> TypedGraph:
    """The training suite's typed graph."""
    return typed_graph(tmp_path_factory.mktemp("worker") / "graph")


@pytest.fixture(scope="session")
def values(graph: TypedGraph) -> dict[str, Any]:
    """A fast training: HGT without messages, 3 epochs of 4 steps."""
    return settings_of(CASES["hgt-full"], graph)
