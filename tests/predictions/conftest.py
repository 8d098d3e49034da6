"""A small typed graph, and a scorer whose scores are a table."""

import numpy as np
import pytest
import torch

from graphmill.graph.typed_graph import Relation, TypedGraph
from graphmill.predictions.top_tails import Candidates
from tests.training.cases import typed_graph


class Table:
    """Scores of one relation, [heads, tails]."""

    def __init__(self, scores: np.ndarray) -> None:
        self.scores = torch.from_numpy(scores.astype(np.float32))

    def score_targets(self, relation: int, heads: np.ndarray) -> torch.Tensor:
        return self.scores[torch.from_numpy(heads)]


@pytest.fixture(scope="session")
def graph(tmp_path_factory: pytest.TempPathFactory) -> TypedGraph:
    return typed_graph(tmp_path_factory.mktemp("predictions") / "graph")


def relation_called(graph: TypedGraph, name: str, source: str) -> Relation:
    return next(each for each in graph.relations if (each.name, each.source) == (name, source))


def candidates_of(graph: TypedGraph, relation: Relation, scores: np.ndarray, *leave_out: int) -> Candidates:
    return Candidates(graph, relation, Table(scores), leave_out or (0, 1, 2))


def random_scores(graph: TypedGraph, relation: Relation, values: int = 1 << 20) -> np.ndarray:
    """Whole numbers below ``values``: few of them make many ties."""
    shape = graph.node_type(relation.source).count, graph.node_type(relation.target).count
    return np.random.default_rng(3).integers(0, values, shape).astype(np.float32)
