"""A softmax HGT of the training suite's cases, built but not trained."""

import torch

from graphmill.graph.typed_graph import TypedGraph
from graphmill.systems.hgt.softmax import HgtSoftmaxSystem
from tests.training.cases import CASES


def built(graph: TypedGraph, case: str, dtype: torch.dtype) -> tuple[HgtSoftmaxSystem, torch.nn.Module]:
    """The system of a case on a graph, and its model in eval mode."""
    _, system = CASES[case].build(graph)
    assert isinstance(system, HgtSoftmaxSystem)
    return system, CASES[case].model(system, dtype).eval()
