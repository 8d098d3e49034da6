"""Cutting a message graph: to some receivers, to some edges; and threads that change no more than rounding."""

from __future__ import annotations

import pytest
import torch

from graphmill.kernels.hgt.plan import MessageGraph, RelationPlan
from tests.kernels.hgt.graphs import hgt_attention, inputs, random_edges

COUNTS, RELATIONS = [9, 7], [(0, 1, 30), (1, 0, 30), (1, 1, 12), (0, 0, 0)]


@pytest.fixture
def graph() -> MessageGraph:
    return MessageGraph.build(COUNTS, random_edges(COUNTS, RELATIONS, 6))


def triples(r: RelationPlan) -> list[tuple[int, int, int]]:
    ends = (r.source_nodes[r.source], r.target_nodes[r.target], r.pair)
    return list(zip(*(x.tolist() for x in ends), strict=True))


def test_edges_come_out_as_they_went_in(graph: MessageGraph) -> None:
    for r, edges in zip(graph.relations, random_edges(COUNTS, RELATIONS, 6), strict=True):
        wanted = (edges.src, edges.dst, edges.pair)
        assert triples(r) == list(zip(*(x.tolist() for x in wanted), strict=True))
        assert r.indptr.diff().tolist() == [int((edges.dst == n).sum()) for n in r.target_nodes]


def test_a_slice_of_targets_has_their_edges_and_no_others(graph: MessageGraph) -> None:
    cut = graph.target_slice(1, 2, 5)
    assert cut.target_counts == (0, 3)
    assert cut.source_counts == graph.source_counts
    for whole, part in zip(graph.relations, cut.relations, strict=True):
        wanted = [(s, d - 2, p) for s, d, p in triples(whole) if whole.target_type == 1 and 2 <= d < 5]
        assert triples(part) == wanted


def test_an_edge_subgraph_has_the_chosen_edges_over_the_nodes_they_touch(graph: MessageGraph) -> None:
    chosen = [torch.tensor([0, 3, 4]), torch.tensor([7]), torch.tensor([], dtype=torch.int64), torch.tensor([]).long()]
    sample, rows = graph.edge_subgraph(chosen, [torch.tensor([8]), None])
    touched: list[set[int]] = [{8}, set()]
    for whole, part, index in zip(graph.relations, sample.relations, chosen, strict=True):
        wanted = [triples(whole)[i] for i in index.tolist()]
        back = [(int(rows[whole.source_type][s]), int(rows[whole.target_type][d]), p) for s, d, p in triples(part)]
        assert back == wanted
        touched[whole.source_type] |= {s for s, _, _ in wanted}
        touched[whole.target_type] |= {d for _, d, _ in wanted}
    assert [r.tolist() for r in rows] == [sorted(t) for t in touched]


def test_the_number_of_threads_changes_no_more_than_rounding() -> None:
    counts = [400, 300]
    graph = MessageGraph.build(counts, random_edges(counts, [(0, 1, 3000), (1, 0, 3000)], 2))
    x = inputs(graph, 4, 32, torch.float64)
    before, result = torch.get_num_threads(), []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            outputs = hgt_attention(*x, graph)
            gradients = torch.autograd.grad(sum(y.square().sum() for y in outputs if y is not None), x.leaves())
            result.append(gradients)
    finally:
        torch.set_num_threads(before)
    for other in result[1:]:
        for a, b in zip(result[0], other, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)
