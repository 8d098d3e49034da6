"""What HGT's steps do besides their products: which parts each way to do the edges has."""

from __future__ import annotations

import pytest
import torch

from benchmarks import hgt_rest
from graphmill.kernels.hgt.plan import MessageGraph, TypedEdges


@pytest.mark.parametrize(
    ("way", "parts"),
    [("compiled", {"rows", "edges"}), ("dense", {"rows", "operators"}), ("sparse", {"operators"})],
)
def test_each_way_to_do_the_edges_has_its_parts(way: hgt_rest.Way, parts: set[str]) -> None:
    """A relation without edges counts for nothing, and edges of one for something."""
    source, target = torch.tensor([0, 1, 2, 2]), torch.tensor([5, 5, 6, 6])
    none = torch.empty(0, dtype=torch.int64)
    edges = [TypedEdges(0, 1, source, target, torch.arange(4)), TypedEdges(1, 0, none, none, none)]
    graph = MessageGraph.build([10, 20], edges)
    found = hgt_rest.seconds(graph, (16, 16), way=way)
    assert found.keys() == parts | {"activations", "loss", "update"}
    assert all(found[part] > 0 for part in parts - {"edges"})
