"""Explanations of NBFNet: shares are derivatives, paths exist, and the listed edges carry the score."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

from graphmill.explain.explanation import ExplainSettings
from graphmill.explain.propagation import explain_propagation
from graphmill.graph.typed_graph import TypedGraph
from graphmill.predictions.settings import LinkSettings
from graphmill.runs.export import Restored, restore
from graphmill.systems.nbfnet.model import NBFNet
from graphmill.systems.nbfnet.system import NbfnetSystem, query_scores
from graphmill.usage.explain import explain_link
from graphmill.usage.links import link_model, write_links
from tests.training.cases import CASES, typed_graph
from tests.training.runs import run, settings_of

LONGER: dict[str, dict[str, int]] = {
    "model": {"num_layers": 3, "nodes_per_layer": 60, "hidden_dim": 16},
    "training": {"epochs": 6, "steps_per_epoch": 20},
}


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> TypedGraph:
    return typed_graph(tmp_path_factory.mktemp("graph") / "graph")


@pytest.fixture(scope="module")
def trained(graph: TypedGraph, tmp_path_factory: pytest.TempPathFactory) -> Restored:
    result = run(settings_of(CASES["nbfnet"], graph, LONGER), tmp_path_factory.mktemp("runs"))
    return restore(Path(result["run_dir"]))


def a_link(graph: TypedGraph, split: int = 1) -> tuple[int, int, int]:
    """A held-out link: the relation, and the rows of its ends."""
    relation = graph.relations[0]
    edges = graph.edges(relation)
    place = int(np.flatnonzero(np.asarray(edges.split) == split)[0])
    ends = graph.node_type(relation.source).offset, graph.node_type(relation.target).offset
    return relation.index, int(edges.src[place]) + ends[0], int(edges.dst[place]) + ends[1]


def test_a_share_is_the_scores_derivative_by_the_edges_weight(graph: TypedGraph, trained: Restored) -> None:
    system, model = trained.system, trained.model
    assert isinstance(system, NbfnetSystem)
    assert isinstance(model, NBFNet)
    model.double()
    try:
        relation, head, tail = a_link(graph)
        why = explain_propagation(system, model, relation, head, tail, 5)
        request = np.array([relation])
        local = np.array([head - system.messages.source_offset[relation]])
        layers = system.layers(request, local)
        before, small, moved = np.array([head]), 1e-6, []
        for layer in layers:
            u, v = before[layer.source], layer.node[layer.target]
            mine = (np.minimum(u, v) == why.source[0]) & (np.maximum(u, v) == why.target[0])
            weight = torch.from_numpy(layer.weight).double()
            moved.append(weight * (1 + small * torch.from_numpy(mine).double()))
            before = layer.node
        at = tail - int(system.messages.target_offset[relation])
        with torch.no_grad():
            scores = [
                float(query_scores(system.messages, model, request, local, layers, weights=edge_weights)[0, at])
                for edge_weights in ([torch.from_numpy(layer.weight).double() for layer in layers], moved)
            ]
        assert scores[0] == pytest.approx(why.score, rel=1e-9)
        assert (scores[1] - scores[0]) / small == pytest.approx(why.share[0], rel=1e-3)
    finally:
        model.float()


def test_paths_run_over_training_edges_from_head_to_tail(graph: TypedGraph, trained: Restored) -> None:
    system, model = trained.system, trained.model
    assert isinstance(system, NbfnetSystem)
    assert isinstance(model, NBFNet)
    relation, head, tail = a_link(graph)
    why = explain_propagation(system, model, relation, head, tail, 5)
    assert why.paths
    assert [p.strength for p in why.paths] == sorted((p.strength for p in why.paths), reverse=True)
    edges = system.messages.all
    for path in why.paths:
        assert (path.nodes[0], path.nodes[-1]) == (head, tail)
        assert len(set(path.nodes)) == len(path.nodes)
        for u, v, kind in zip(path.nodes, path.nodes[1:], path.relations, strict=False):
            outgoing = slice(edges.pointer[u], edges.pointer[u + 1])
            assert ((edges.target[outgoing] == v) & (edges.relation[outgoing] == kind)).any()


def test_without_the_listed_edges_the_score_falls_more_than_without_others(
    graph: TypedGraph, trained: Restored
) -> None:
    ids, relation = graph.node_table()["id"].to_pylist(), graph.relations[0]
    edges = graph.edges(relation)
    ends = graph.node_type(relation.source).offset, graph.node_type(relation.target).offset
    falls = []
    for place in np.flatnonzero(np.asarray(edges.split) > 0)[:8].tolist():
        head, tail = ids[edges.src[place] + ends[0]], ids[edges.dst[place] + ends[1]]
        result = explain_link(trained, head, "|".join(relation.key), tail, ExplainSettings(edges=5), verify=True)
        assert sum(result.parts.values()) == pytest.approx(result.score, abs=1e-4)
        assert all(path["path"].startswith(path["nodes"][0]) for path in result.paths)
        listed, others = result.deletion["without_the_listed_edges"], result.deletion["without_as_many_others"]
        falls.append((result.score - listed, result.score - others))
    mine, theirs = np.array(falls).mean(0)
    assert mine > max(theirs, 0)


def test_an_explanation_has_the_shares_and_paths_of_the_propagation(graph: TypedGraph, trained: Restored) -> None:
    system, model, (relation, head, tail) = trained.system, trained.model, a_link(graph)
    assert isinstance(system, NbfnetSystem)
    assert isinstance(model, NBFNet)
    why, nodes = explain_propagation(system, model, relation, head, tail, 5), graph.node_table()
    ids, names = nodes["id"].to_pylist(), nodes["name"].to_pylist()
    settings = ExplainSettings(edges=4, paths=5)
    result = explain_link(trained, ids[head], "|".join(graph.relations[relation].key), ids[tail], settings)
    shares = {frozenset((names[u], names[v])): s for u, v, s in zip(why.source, why.target, why.share, strict=True)}
    assert [e["share"] for e in result.edges[:4]] == pytest.approx(np.sort(why.share)[::-1][:4].tolist(), rel=1e-4)
    assert all(e["share"] == pytest.approx(shares[frozenset((e["head"], e["tail"]))], rel=1e-4) for e in result.edges)
    assert [path["nodes"] for path in result.paths] == [[names[node] for node in path.nodes] for path in why.paths]
    kinds = system.messages.named([each.name for each in graph.relations])
    assert [path["relations"] for path in result.paths] == [[kinds[k] for k in path.relations] for path in why.paths]


def test_the_best_links_of_a_table_have_the_edges_behind_them(trained: Restored) -> None:
    run = trained.run.path
    write_links(link_model(run), LinkSettings(relations=["drug_protein"], k=2, explained_links=2, csv=False))
    because = pq.read_table(run / "links" / "links.parquet")["because"].to_pylist()
    edges = [edge for text in because if text for edge in text.split(" ; ")]
    assert len(edges) > 2
    assert all("–" in edge and "(+" in edge for edge in edges)
