"""The graphs, built once."""

from pathlib import Path

import pytest

from graphmill.graph.typed_graph import TypedGraph
from tests.systems.conve.graphs import graph_of, random_graph


@pytest.fixture(scope="session")
def sample(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> TypedGraph:
    """The committed triples as a graph."""
    return graph_of(repository / "data/01_raw/triples", tmp_path_factory.mktemp("kg_bench") / "graph")


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory) -> TypedGraph:
    """60 random triples of 12 entities."""
    return random_graph(tmp_path_factory.mktemp("small") / "graph")
