"""Supporting paths are those of brute force over the training edges, and bounded at hubs."""

import itertools

import numpy as np
import pyarrow as pa
import pytest

from graphmill.graph.typed_graph import TypedGraph
from graphmill.predictions import paths
from graphmill.predictions.paths import PathEvidence, TrainingPaths


@pytest.fixture(scope="module")
def adjacency(graph: TypedGraph) -> dict[int, set[int]]:
    """By a loop over the training edges, both ways."""
    result: dict[int, set[int]] = {node: set() for node in range(graph.num_nodes)}
    for relation in graph.relations:
        edges, first = graph.edges(relation.index), graph.node_type(relation.source).offset
        second = graph.node_type(relation.target).offset
        for src, dst, split in zip(edges.src, edges.dst, edges.split, strict=True):
            if split == 0 and src + first != dst + second:
                result[int(src + first)].add(int(dst + second))
                result[int(dst + second)].add(int(src + first))
    return result


def brute_force(adjacency: dict[int, set[int]], head: int, tail: int) -> list[tuple[float, int, tuple[int, ...]]]:
    degree = {node: len(near) for node, near in adjacency.items()}
    between = [(a,) for a in adjacency[head] & adjacency[tail]]
    between += [(a, b) for a in adjacency[head] for b in adjacency[a] & adjacency[tail] if b != head and a != tail]
    result = [
        (float(np.prod([degree[node] for node in nodes])), len(nodes), (head, *nodes, tail))
        for nodes in between
        if head not in nodes and tail not in nodes
    ]
    return sorted(result)[:3]


def test_the_best_paths_are_those_of_brute_force(graph: TypedGraph, adjacency: dict[int, set[int]]) -> None:
    search = TrainingPaths.of_graph(graph)
    rng = np.random.default_rng(0)
    lengths = set()
    for head in rng.choice(graph.num_nodes, 25, replace=False).tolist():
        tails = rng.choice(np.delete(np.arange(graph.num_nodes), head), 20, replace=False)
        for tail, result in zip(tails.tolist(), search.best(head, tails), strict=True):
            assert [(p.weight, len(p.nodes) - 2, p.nodes) for p in result] == brute_force(adjacency, head, tail)
            lengths |= {p.length for p in result}
    assert lengths == {2, 3}


def test_over_the_bound_the_largest_hubs_are_left_out(
    graph: TypedGraph, adjacency: dict[int, set[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    search = TrainingPaths.of_graph(graph)
    head = int(np.argmax(search.degree))
    tails = np.delete(np.arange(graph.num_nodes), head)
    whole = search.best(head, tails)
    monkeypatch.setattr(paths, "MOST_EDGES", int(search.degree[search.of(head)].sum()) // 2)
    part = search.best(head, tails)
    assert [len(p) for p in part] != [len(p) for p in whole]
    largest = max(search.degree[p.nodes[1]] for p in itertools.chain(*whole) if p.length == 3)
    assert all(search.degree[p.nodes[1]] < largest for p in itertools.chain(*part) if p.length == 3)
    two = [[p.nodes for p in each if p.length == 2] for each in whole]
    result = [[p.nodes for p in each if p.length == 2] for each in part]
    assert all(set(a) <= set(b) for a, b in zip(two, result, strict=True)), "paths over one node are always found"


def test_paths_are_told_by_name(
    graph: TypedGraph, adjacency: dict[int, set[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"<{node}>" for node in range(graph.num_nodes)]
    monkeypatch.setattr(graph, "node_table", lambda: pa.table({"name": names}))
    evidence = PathEvidence(graph)
    head, tail = next(
        (h, t) for h, t in itertools.combinations(range(graph.num_nodes), 2) if len(brute_force(adjacency, h, t)) == 3
    )
    result = evidence(0, np.array([head]), np.array([tail]))
    nodes = brute_force(adjacency, head, tail)[0][-1]
    first = result["paths"][0].split(" ; ")[0]
    assert result["path_length"] == [min(n for _, n, _ in brute_force(adjacency, head, tail)) + 1]
    assert [part for part in first.split("–") if part.strip().startswith("<")][-1].strip() == f"<{tail}>"
    assert all(f"<{node}>" in first for node in nodes)
    assert "disease_protein" in first or "drug_protein" in first or "protein_protein" in first
    assert evidence.schema.names == list(result)
