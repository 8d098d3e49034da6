"""The part of a blend that counts paths."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from graphmill.graph.typed_graph import TypedGraph
from graphmill.systems.blend.paths import PairedLinks, Paths, PathWeights
from tests.training.cases import typed_graph


def planted(seed: int = 0) -> PairedLinks:
    """Relation 0 joins what two steps of relation 1 join, nine times in ten; relation 2 is chance. Pairs are their own."""
    rng = np.random.default_rng(seed)
    n = 80
    step = rng.permutation(n)
    goal = np.where(rng.random(n) < 0.9, step[step], rng.integers(0, n, n))
    edges = [(np.arange(n), goal), (np.arange(n), step), (rng.integers(0, n, 300), rng.integers(0, n, 300))]
    matrices, at = [], 1
    for heads, tails in edges:
        key = np.unique(heads * n + tails)
        matrices.append(sp.csr_matrix((np.arange(at, at + len(key)), (key // n, key % n)), (n, n)))
        at += len(key)
    return PairedLinks(matrices, [(0, 0)] * 3)


def test_the_path_that_was_planted_is_found_and_weighs_most() -> None:
    links = planted()
    paths = PathWeights(3)
    paths.fit(links, seed=0)
    assert paths.channels[0, int(paths.weights[0].argmax())].tolist() == [1, 1]
    again = PathWeights(3)
    again.fit(links, seed=0)
    assert torch.equal(paths.weights, again.weights)


def test_a_link_is_no_evidence_for_itself_by_its_reverse() -> None:
    """In a symmetric relation of chance the way back is there for each training link, and for no held-out one."""
    rng = np.random.default_rng(1)
    n, pairs = 60, {tuple(sorted(p)) for p in rng.integers(0, 60, (150, 2)).tolist() if p[0] != p[1]}
    ends = np.array(sorted(pairs))
    # Two relations, each the other's reverse but for one edge, so that neither is left out as the same.
    numbers = np.arange(1, len(ends) + 1)
    forth = sp.csr_matrix((numbers, (ends[:, 0], ends[:, 1])), (n, n))
    back = sp.csr_matrix((numbers[1:], (ends[1:, 0], ends[1:, 1])), (n, n))
    paths = PathWeights(2)
    paths.fit(PairedLinks([forth, back], [(0, 0)] * 2), seed=0)
    direct = paths.weights[0][(paths.channels[0] == torch.tensor([1, -1])).all(1)]
    assert len(direct) == 1
    assert float(direct.abs()) < 0.5


def test_all_paths_in_one_product_are_those_of_each_channel(tmp_path: pytest.TempPathFactory) -> None:
    graph: TypedGraph = typed_graph(tmp_path / "graph")  # type: ignore[operator]
    links, weights = PairedLinks.of_graph(graph), PathWeights(len(graph.relations))
    weights.fit(links, seed=0)
    paths = Paths(links, weights.channels.numpy(), weights.weights.numpy())
    heads = np.array([3, 0, 7])
    for relation in range(len(graph.relations)):
        expected = np.zeros((3, links.outgoing[relation].shape[1]))
        for (first, second), weight in zip(paths.channels[relation], paths.weights[relation], strict=True):
            if weight:
                result = paths.typed.step(int(first))[heads]
                expected += weight * (result if second < 0 else result @ paths.typed.step(int(second))).toarray()
        expected = np.sign(expected) * np.log1p(np.abs(expected))
        np.testing.assert_allclose(paths.scores(relation, heads), expected, atol=1e-5)
    assert (paths.weights != 0).any()
