"""Frontiers: the compiled form is the plain one; without a cap, all paths; the sums of messages and their gradients."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from graphmill.kernels import frontier
from graphmill.kernels.frontier import Edges, Layer, Queries, frontiers, messages
from graphmill.kernels.frontier.messages import message_sums

RELATIONS = 3


def random_edges(rng: np.random.Generator, nodes: int, edges: int) -> Edges:
    """Parallel edges, loops, nodes without edges and one hub; weights that tie."""
    source = np.sort(np.where(rng.random(edges) < 0.3, 0, rng.integers(0, nodes, edges)))
    pointer = np.concatenate([[0], np.cumsum(np.bincount(source, minlength=nodes))]).astype(np.int64)
    target, relation = rng.integers(0, nodes, edges), rng.integers(0, RELATIONS, edges)
    weight = rng.choice([0.25, 0.5], edges).astype(np.float32)
    return Edges(
        pointer, target.astype(np.int32), relation.astype(np.int32), weight, np.arange(RELATIONS, dtype=np.uint64)
    )


def random_queries(rng: np.random.Generator, nodes: int, count: int) -> Queries:
    return Queries(
        head=rng.integers(0, nodes, count),
        tail=rng.integers(-1, nodes, count),
        relation=rng.integers(0, RELATIONS, count),
        reverse=rng.integers(0, RELATIONS, count),
        whole_pairs=bool(rng.integers(2)),
        out=rng.choice([1.0, 1.5], count),
        into=rng.choice([1.0, 1.2], count),
        first=rng.integers(0, nodes // 2 + 1, count),
        last=rng.integers(nodes // 2, nodes + 1, count),
        key=rng.integers(0, 2**63, count).astype(np.uint64),
        offset=rng.integers(0, 2, count) * RELATIONS,
        reads=rng.random(nodes) < 0.7,
    )


@settings(deadline=None, max_examples=60)
@given(
    seed=st.integers(0, 2**32),
    nodes=st.integers(2, 40),
    edges=st.integers(0, 200),
    cap=st.integers(1, 40),
    drop=st.sampled_from([0.0, 0.3]),
)
def test_the_compiled_frontier_is_the_plain_one(seed: int, nodes: int, edges: int, cap: int, drop: float) -> None:
    rng = np.random.default_rng(seed)
    graph, queries = random_edges(rng, nodes, edges), random_queries(rng, nodes, 4)
    compiled = frontiers(graph, queries, 3, cap, drop)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(frontier, "has_numba", lambda: False)
        plain = frontiers(graph, queries, 3, cap, drop)
    for one, other in zip(compiled, plain, strict=True):
        for name, array in one._asdict().items():
            np.testing.assert_array_equal(array, getattr(other, name), name, strict=True)


@settings(deadline=None, max_examples=30)
@given(seed=st.integers(0, 2**32), nodes=st.integers(2, 30), edges=st.integers(0, 120))
def test_without_a_cap_messages_run_over_every_edge_but_the_pairs(seed: int, nodes: int, edges: int) -> None:
    rng = np.random.default_rng(seed)
    graph, tail = random_edges(rng, nodes, edges), int(rng.integers(0, nodes))
    head, zero, one = int(rng.integers(0, nodes)), np.array([0]), np.ones(1)
    queries = Queries(
        head=np.array([head]),
        tail=np.array([tail]),
        relation=zero,
        reverse=zero,
        whole_pairs=True,
        out=one,
        into=one,
        first=zero,
        last=np.array([nodes]),
        reads=np.ones(nodes, bool),
        key=zero.astype(np.uint64),
        offset=zero,
    )
    result = np.zeros(nodes)
    layers = frontiers(graph, queries, 3, nodes)
    states = torch.ones(1, 1, dtype=torch.float64)
    for layer in layers:
        states = message_sums(layer, states, torch.ones(RELATIONS, 1, dtype=torch.float64))
    result[layers[-1].node] = states[:, 0]
    source = np.repeat(np.arange(nodes), np.diff(graph.pointer))
    pair_edges = ((source == head) & (graph.target == tail)) | ((source == tail) & (graph.target == head))
    dense = np.zeros((nodes, nodes))
    np.add.at(dense, (source[~pair_edges], graph.target[~pair_edges]), graph.weight[~pair_edges])
    np.testing.assert_allclose(result, np.linalg.matrix_power(dense, 3)[head], rtol=1e-12, atol=1e-14)


def a_layer(seed: int = 0, nodes: int = 50, edges: int = 400) -> tuple[int, Layer]:
    rng = np.random.default_rng(seed)
    layers = frontiers(random_edges(rng, nodes, edges), random_queries(rng, nodes, 6), 2, 20)
    return len(layers[0].node), layers[1]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_sums_of_messages_and_gradients_are_the_plain_ones(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    rows, layer = a_layer()
    torch.manual_seed(0)
    x = torch.randn(rows, 20, dtype=dtype, requires_grad=True)
    w = torch.randn(2 * RELATIONS, 20, dtype=dtype, requires_grad=True)
    given_ = torch.randn(len(layer.node), 20, dtype=dtype)
    result = []
    for compiled in (True, False):
        monkeypatch.setattr(messages, "has_numba", lambda compiled=compiled: compiled)
        out = message_sums(layer, x, w)
        result.append([out, *torch.autograd.grad(out, (x, w), given_)])
    tight = 1e-11 if dtype == torch.float64 else 1e-4
    for one, other in zip(*result, strict=True):
        torch.testing.assert_close(one, other, rtol=tight, atol=tight)


def test_gradcheck_of_the_messages() -> None:
    rows, layer = a_layer(1, 12, 40)
    x = torch.randn(rows, 3, dtype=torch.float64, requires_grad=True)
    w = torch.randn(2 * RELATIONS, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda a, b: message_sums(layer, a, b), (x, w))


def test_any_number_of_threads_gives_the_same_bits() -> None:
    rows, _ = a_layer(2, 2000, 60_000)
    x, w = torch.randn(rows, 64, requires_grad=True), torch.randn(2 * RELATIONS, 64, requires_grad=True)
    threads, result = torch.get_num_threads(), []
    try:
        for count in (1, 2, 3):
            torch.set_num_threads(count)
            out = message_sums(a_layer(2, 2000, 60_000)[1], x, w)
            result.append([t.detach().numpy().tobytes() for t in (out, *torch.autograd.grad(out.sum(), (x, w)))])
    finally:
        torch.set_num_threads(threads)
    assert result[0] == result[1] == result[2]


def test_dropped_pairs_go_in_both_directions() -> None:
    one, other = np.arange(200), np.arange(200)[::-1].copy()
    key, least = np.full(200, 7, np.uint64), np.uint64(2**62)
    kept = frontier.kept_pairs(one, other, key, least)
    assert (kept == frontier.kept_pairs(other, one, key, least)).all()
    assert 0.6 < kept.mean() < 0.9


def test_what_a_query_sees_of_a_node_keeps_its_mean_weight_when_edges_are_left_out() -> None:
    """Over many queries, each without another half of the pairs."""
    rng, count = np.random.default_rng(0), 4000
    graph = random_edges(rng, 30, 60)
    queries = random_queries(rng, 30, count)._replace(
        head=np.zeros(count, np.int64), tail=np.full(count, -1), out=np.ones(count), into=np.ones(count)
    )
    reads = {"first": np.zeros(count, np.int64), "last": np.full(count, 30), "reads": np.ones(30, bool)}
    whole, dropped = (frontiers(graph, queries._replace(**reads), 1, 30, drop)[0] for drop in (0.0, 0.5))
    assert len(dropped.weight) < 0.6 * len(whole.weight)
    assert dropped.weight.sum() == pytest.approx(whole.weight.sum(), rel=0.05)
