"""A softmax HGT of the training suite's cases, built but not trained."""

import torch

from graphmill.graph.typed_graph import TypedGraph
from graphmill.systems.hgt.softmax import HgtSoftmaxRecipe
from tests.training.cases import CASES


def built(graph: TypedGraph, case: str, dtype: torch.dtype) -> tuple[HgtSoftmaxRecipe, torch.nn.Module]:
    """The recipe of a case on a graph, and its model in eval mode."""
    _, recipe = CASES[case].build(graph)
    assert isinstance(recipe, HgtSoftmaxRecipe)
    return recipe, CASES[case].model(recipe, dtype).eval()
