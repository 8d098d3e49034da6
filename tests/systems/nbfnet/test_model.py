"""NBFNet against its equations in dense form, where no cap is reached: scores and gradients in float64."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from graphmill.graph.splits import TRAIN
from graphmill.graph.typed_graph import TypedGraph
from graphmill.runs.resolve import resolve
from graphmill.systems.base import SMALL_GRAPH
from graphmill.systems.nbfnet.model import NBFNet
from graphmill.systems.nbfnet.settings import PRESETS
from graphmill.systems.nbfnet.system import NbfnetSystem, QueryBatch, query_scores
from graphmill.systems.registry import choose_preset
from tests.training.cases import CASES, typed_graph


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> TypedGraph:
    return typed_graph(Path(tmp_path_factory.mktemp("nbfnet")) / "graph")


@pytest.fixture(scope="module", params=["nbfnet", "nbfnet-triples"])
def any_graph(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> TypedGraph:
    """The graph, and one without reverses, where several relations join the same nodes."""
    return CASES[request.param].graph(Path(tmp_path_factory.mktemp(request.param)) / "graph")


def built(graph: TypedGraph, **sections: Any) -> tuple[NbfnetSystem, NBFNet]:
    _, system = CASES["nbfnet"].build(graph, **sections)
    assert isinstance(system, NbfnetSystem)
    model = CASES["nbfnet"].model(system, torch.float64)
    assert isinstance(model, NBFNet)
    return system, model


def dense_scores(graph: TypedGraph, model: NBFNet, relation: int, head: int, tail: int | None = None) -> Tensor:
    """The scores of all targets of one query, with a matrix [N, N] of each relation; without the pair's edges.

    In a graph without reverses ``relation`` may be an inverse, R + r, and ``tail`` takes out the pair's links of
    this relation alone.
    """
    count, triples = len(graph.relations), len(model.query) > len(graph.relations)
    r = graph.relations[relation % count]
    source, target = graph.node_type(r.source), graph.node_type(r.target)
    if relation >= count:
        source, target = target, source
    matrices, degree = [], torch.zeros(0)
    for each in graph.relations:
        a, b = graph.node_type(each.source), graph.node_type(each.target)
        edges = graph.edges(each)
        train = np.asarray(edges.split) == TRAIN
        matrix = torch.zeros(graph.num_nodes, graph.num_nodes, dtype=torch.float64)
        matrix[np.asarray(edges.src)[train] + a.offset, np.asarray(edges.dst)[train] + b.offset] = 1.0
        if each.index == relation % count:
            into = matrix.sum(int(relation >= count))
            degree = into[target.offset : target.offset + target.count].clone()
        if tail is not None and not triples:  # the graph without the pair
            u, v = head + source.offset, tail + target.offset
            matrix[u, v] = matrix[v, u] = 0.0
        without_link = tail is not None and triples and each.index == relation % count
        if without_link:
            u, v = (head, tail) if relation < count else (tail, head)
            matrix[u, v] = 0.0
        out, into = matrix.sum(1, keepdim=True), matrix.sum(0, keepdim=True)
        matrices.append((matrix * (out * into).clamp(min=1).rsqrt()).float().double())  # stored in fp32
        if without_link:  # nor is a link of the relation from tail to head read; it counts in degrees
            matrices[-1][v, u] = 0.0
    matrices += [matrix.T for matrix in matrices] if triples else []
    if tail is not None:
        degree[tail] = (degree[tail] - 1).clamp(min=0)
    log_degree = torch.from_numpy(np.log1p(degree.float().numpy())).double()
    q, states = model.query[relation], torch.zeros(graph.num_nodes, model.query.shape[1], dtype=torch.float64)
    at_head = torch.zeros(graph.num_nodes, 1, dtype=torch.float64)
    at_head[head + source.offset] = 1.0
    states, reached = at_head * q, at_head[:, 0] > 0
    for layer in model.layers:
        w = layer.factors(q[None]).view(len(matrices), -1)
        message = sum((m.T @ (states * w[n]) for n, m in enumerate(matrices)), at_head * q)
        reached = reached | (sum(m.T @ reached.double() for m in matrices) > 0)
        update = F.relu(layer.norm(layer.state(states) + layer.message(message) + layer.query(q)))
        states = (update + states) * reached[:, None]
    x = states[target.offset : target.offset + target.count]
    hidden = model.state(x) + model.of_query(q) + log_degree[:, None] * model.degree
    mlp = model.out(F.relu(hidden))[:, 0]
    reached_targets = reached[target.offset : target.offset + target.count]
    return torch.where(reached_targets, mlp, model.unreached[relation]) + model.popularity[relation] * log_degree


def test_scores_are_those_of_the_dense_form(any_graph: TypedGraph) -> None:
    graph = any_graph
    system, model = built(graph, model={"num_layers": 3, "nodes_per_layer": 1000})
    torch.nn.init.normal_(model.popularity)
    torch.nn.init.normal_(model.degree)
    for relation in range(len(model.query)):
        heads = np.array([0, 3, 3, 7])
        request = np.full(4, relation)
        result = query_scores(system.messages, model, request, heads, system.layers(request, heads))
        exact = torch.stack([dense_scores(graph, model, relation, int(head)) for head in heads])
        torch.testing.assert_close(result, exact, rtol=1e-10, atol=1e-10)


def test_the_loss_and_its_gradient_are_those_of_the_dense_form(any_graph: TypedGraph) -> None:
    graph, count = any_graph, len(any_graph.relations)
    system, model = built(
        graph,
        model={"num_layers": 3, "nodes_per_layer": 1000},
        objective={"edge_dropout": 0.0, "candidates": 0},
    )
    torch.nn.init.normal_(model.popularity)
    assert system.messages.whole_pairs == (len(model.query) == count)
    batch = system.step(system.phases[0], 0, 0)
    assert len(model.query) == count or (batch.relation >= count).any()
    (term,) = system.terms(model, batch, None)
    result = torch.autograd.grad(term.sum, list(model.parameters()))
    exact = term.sum.new_zeros(())
    for relation, head, tail in zip(batch.relation.tolist(), batch.head.tolist(), batch.tail.tolist(), strict=True):
        scores = dense_scores(graph, model, relation, head, tail)
        edges = graph.edges(relation % count)
        ends = [np.asarray(edges.src), np.asarray(edges.dst)]
        src, dst = ends if relation < count else reversed(ends)
        known = np.setdiff1d(dst[(src == head) & (np.asarray(edges.split) == TRAIN)], [tail])
        scores = scores.index_fill(0, torch.from_numpy(known).long(), -torch.inf)
        exact = exact - torch.log_softmax(scores, 0)[tail]
    torch.testing.assert_close(term.sum, exact, rtol=1e-6, atol=1e-6)  # weights are rounded twice
    for one, other in zip(result, torch.autograd.grad(exact, list(model.parameters())), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)


def test_a_querys_own_pair_is_taken_out_in_every_direction(graph: TypedGraph) -> None:
    system, _ = built(graph)
    messages = system.messages
    assert messages.whole_pairs
    batch = system.step(system.phases[0], 0, 1)
    layers = messages.layers(batch.relation, batch.head, batch.tail, None, 2, 1000, 0.0)
    ends = batch.head + messages.source_offset[batch.relation], batch.tail + messages.target_offset[batch.relation]
    before, start = ends[0], np.arange(len(batch) + 1)
    for layer in layers:
        query = np.searchsorted(start, layer.source, side="right") - 1
        u, v = before[layer.source], layer.node[layer.target]
        assert not ((u == ends[0][query]) & (v == ends[1][query])).any()
        assert not ((u == ends[1][query]) & (v == ends[0][query])).any()
        before, start = layer.node, layer.start


def test_sampled_candidates_leave_the_scores_of_those_that_are_read(graph: TypedGraph) -> None:
    system, model = built(graph, model={"nodes_per_layer": 1000}, objective={"edge_dropout": 0.0})
    batch = system.step(system.phases[0], 0, 0)
    assert batch.candidates is not None
    for relation in np.unique(batch.relation).tolist():
        mine: QueryBatch = batch.take(np.flatnonzero(batch.relation == relation))
        first = system.messages.target_offset[relation]
        layers = system.layers(mine.relation, mine.head, mine)
        degree = system.messages.log_degree(mine.relation, mine.tail, mine.degrees)
        some = query_scores(system.messages, model, mine.relation, mine.head, layers, degree)
        every = torch.stack(
            [dense_scores(graph, model, relation, int(h), int(t)) for h, t in zip(mine.head, mine.tail, strict=True)]
        )
        read = np.zeros(every.shape, bool)
        local = batch.candidates[(batch.candidates >= first) & (batch.candidates < first + every.shape[1])] - first
        read[:, local] = True
        read[np.arange(len(mine)), mine.tail] = True
        torch.testing.assert_close(some[read], every[read], rtol=1e-5, atol=1e-6)


def test_degrees_in_training_do_not_tell_which_target_has_lost_a_link(graph: TypedGraph) -> None:
    system, _ = built(graph)
    exact = np.asarray(system.messages.degrees[0])
    drawn = [system.messages.thinned(0, 0.2, np.random.default_rng(n)) for n in range(400)]
    np.testing.assert_allclose(np.mean(drawn, 0), exact, atol=0.6)
    assert (np.std(drawn, 0)[exact > 3] > 0.5).all()
    assert not np.std(drawn, 0)[exact == 0].any()


def test_a_small_graph_has_its_preset_and_a_larger_one_the_defaults(graph: TypedGraph) -> None:
    job = resolve({"system": "nbfnet", "data": str(graph.path), "training": {"epochs": 2}}, "test")
    assert job.preset == "small_graph"
    assert job.settings.model.num_layers == PRESETS["small_graph"]["model"]["num_layers"]
    assert job.settings.training.epochs == 2, "what is written holds"
    assert choose_preset("nbfnet", "cpu", 8 << 30, SMALL_GRAPH + 1)[0] == "none"


def test_a_large_graph_is_validated_on_a_sample(graph: TypedGraph, monkeypatch: pytest.MonkeyPatch) -> None:
    system, _ = built(graph)
    queries = system.ranking_queries("valid").relations
    assert system.validated_links() == 0
    monkeypatch.setattr("graphmill.systems.nbfnet.system.VALIDATED", 3 * len(queries))
    assert max(len(each.heads) for each in queries) > system.validated_links() == 3
    assert built(graph, evaluation={"max_queries": 7})[0].validated_links() == 7
