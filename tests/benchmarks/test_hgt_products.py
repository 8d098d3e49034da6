"""The products that HGT's steps are held against, counted by hand."""

from __future__ import annotations

import pytest
import torch

from benchmarks import hgt_products
from graphmill.kernels.hgt.plan import MessageGraph, TypedEdges


def test_the_products_have_each_product_of_a_step_and_none_that_is_dead() -> None:
    """Type 0 only sends, type 1 only receives, type 2 does neither; three senders meet two receivers."""
    source, target = torch.tensor([0, 1, 2]), torch.tensor([5, 5, 6])
    graph = MessageGraph.build([10, 20, 30], [TypedEdges(0, 1, source, target, torch.arange(3))])
    found = hgt_products.products(graph, (4, 8), heads=2)
    assert dict(found) == {
        ("mm", 1, 10, 4, 16): 1,  # keys and values of type 0
        ("mm", 1, 20, 4, 8): 1,  # queries of type 1
        ("mm", 1, 20, 8, 8): 1,  # its output
        ("bmm", 2, 2, 4, 4): 2,  # the relation's two matrices, on the two receivers
    }
    multiplications = 10 * 4 * 16 + 20 * 4 * 8 + 20 * 8 * 8 + 2 * (2 * 2 * 4 * 4)
    assert hgt_products.gflop(found) == pytest.approx(3 * 2 * multiplications / 1e9)
    assert hgt_products.Products(found).seconds() > 0
