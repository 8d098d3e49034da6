"""Nearest neighbours and spectral vectors as baselines, against loops over edges."""

from functools import partial
from itertools import product

import numpy as np
import pytest

from graphmill.errors import StoppedError
from graphmill.evaluation.baselines import neighbours
from graphmill.evaluation.baselines.neighbours import NeighbourScorer, NeighbourSetting, choose, of_length
from graphmill.evaluation.baselines.train_edges import TrainEdges
from graphmill.evaluation.ranking.links import rank_links
from graphmill.evaluation.ranking.queries import both_sides, link_queries
from graphmill.graph import typed_paths
from graphmill.graph.spectral import SpectralVectors, neighbourhoods, scaled
from tests.evaluation.ranking.graphs import FakeGraph, random_graph

SYMMETRIC = np.array([[0, 1, 0], [1, 0, 0], [2, 1, 0], [1, 2, 0], [0, 3, 1], [3, 0, 1], [3, 2, 2], [2, 3, 2]])
"""Rows of (source, target, split), both ways."""


def with_reverse() -> FakeGraph:
    rng = np.random.default_rng(3)
    pairs = np.unique(rng.integers(0, [8, 12], (40, 2)), axis=0)
    split = rng.choice([0, 1, 2], len(pairs), p=[0.6, 0.2, 0.2])
    return FakeGraph(
        {"drug": 8, "gene": 12},
        [
            ("drug", "binds", "gene", np.column_stack([pairs, split])),
            ("gene", "binds", "drug", np.column_stack([pairs[:, ::-1], split])),
            ("gene", "near", "gene", SYMMETRIC),
        ],
    )


def test_a_graph_that_holds_its_reverses_is_read_as_it_is() -> None:
    edges = TrainEdges(with_reverse())
    assert edges.reversed
    assert list(edges.relations) == [0, 1, 2]
    assert [edges.known_as(relation) for relation in range(6)] == [0, 1, 2, 1, 0, 2]


def test_relations_are_not_compared_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """FB15k-237 has 474 with its reverses: to compare each pair of them took 17 s."""
    read: list[int] = []
    edges_of = TrainEdges.edges
    monkeypatch.setattr(TrainEdges, "edges", lambda self, number: read.append(number) or edges_of(self, number))
    TrainEdges(with_reverse())
    assert sorted(read) == [0, 1, 2, 3, 4, 5]


def test_inverses_stand_in_for_reverses_that_are_missing() -> None:
    graph = random_graph(1)
    edges = TrainEdges(graph)
    assert not edges.reversed
    assert list(edges.relations) == [0, 1, 2, 3, 4, 5]
    for relation in graph.relations:
        links = graph.edges(relation.index)
        pairs = {(int(s), int(d)) for s, d, split in zip(links.src, links.dst, links.split, strict=True) if split == 0}
        assert set(zip(*edges.matrix(relation.index).nonzero(), strict=True)) == pairs
        assert set(zip(*edges.matrix(relation.index + 3).nonzero(), strict=True)) == {(d, s) for s, d in pairs}


def by_hand(edges: TrainEdges, rows: np.ndarray, relation: int, setting: NeighbourSetting) -> np.ndarray:
    source, target = edges.ends(relation)
    links = edges.matrix(relation).toarray()
    out = np.zeros((source.count, target.count))
    for h, t in product(range(source.count), range(target.count)):
        by_source = sum(rows[source.offset + h] @ rows[source.offset + s] for s in np.flatnonzero(links[:, t]))
        by_target = sum(rows[target.offset + t] @ rows[target.offset + o] for o in np.flatnonzero(links[h]))
        by_source *= (1 + links[:, t].sum()) ** -setting.damping
        by_target *= (1 + links[h].sum()) ** -setting.damping
        parts = {"source": by_source, "target": by_target, "both": by_source + by_target}[setting.side]
        degree = np.log1p(links[:, t].sum())
        out[h, t] = setting.strength * parts + degree if setting.strength else parts + 1e-6 * degree
    return out


@pytest.mark.parametrize(
    "setting",
    [
        NeighbourSetting("both", 10.0, 3.0, 0.0),
        NeighbourSetting("source", 3.0, 1.0, 0.5),
        NeighbourSetting("target", 0.0, 3.0, 0.5),
    ],
)
@pytest.mark.parametrize("kind", ["knn", "spectral"])
def test_scores_are_sums_of_similarities(kind: str, setting: NeighbourSetting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(typed_paths, "BLOCK_BYTES", 600)  # a block of one or two heads
    graph = random_graph(2)
    edges, entries = TrainEdges(graph), neighbourhoods(graph)
    rows = scaled(entries.matrix, setting.shrinkage) if kind == "knn" else SpectralVectors.of(entries, 6, seed=0).all()
    dense = rows.toarray() if kind == "knn" else rows
    scorer = NeighbourScorer(edges, rows, setting)
    for relation in range(6):
        heads = np.arange(edges.ends(relation)[0].count)
        expected = by_hand(edges, dense.astype(np.float64), relation, setting)
        np.testing.assert_allclose(scorer.score_targets(relation, heads).numpy(), expected, rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("ask", [link_queries, both_sides])
def test_the_setting_is_the_best_of_the_grid_on_validation_links(ask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(neighbours, "STRENGTHS", (1.0, 0.0))
    graph = random_graph(4)
    edges, queries = TrainEdges(graph), ask(graph, "valid")
    matrix = neighbourhoods(graph).matrix
    rows_of = {shrinkage: partial(scaled, matrix, shrinkage) for shrinkage in neighbours.SHRINKAGES}
    chosen, mrr = choose(edges, queries, rows_of)
    grid = product(neighbours.SIDES, neighbours.STRENGTHS, rows_of, neighbours.DAMPINGS)
    result = {
        setting: rank_links(NeighbourScorer(edges, rows_of[setting.shrinkage](), setting), queries)
        for setting in (NeighbourSetting(*each) for each in grid)
    }
    assert mrr == pytest.approx(max(ranking.macro["mrr"] for ranking in result.values()))
    assert result[chosen].macro["mrr"] == pytest.approx(mrr)


def test_wide_spectral_vectors_rank_as_neighbourhoods_do() -> None:
    entries = neighbourhoods(with_reverse())
    rows, vectors = scaled(entries.matrix, 3.0), SpectralVectors.of(entries, 64, seed=0).all()
    np.testing.assert_allclose(vectors @ vectors.T, (rows @ rows.T).toarray(), atol=1e-4)
    length = np.linalg.norm(vectors, axis=1)
    np.testing.assert_allclose(
        np.linalg.norm(of_length(vectors, 1.0), axis=1), np.sqrt(length / (length + 0.3)), atol=1e-5
    )


def test_held_out_links_are_not_looked_at() -> None:
    graph = random_graph(5)
    edges = TrainEdges(graph)
    for relation in graph.relations:
        links = graph.edges(relation.index)
        held_out = {(s, d) for s, d, split in zip(links.src, links.dst, links.split, strict=True) if split}
        train = {(s, d) for s, d, split in zip(links.src, links.dst, links.split, strict=True) if not split}
        result = set(zip(*edges.matrix(relation.index).nonzero(), strict=True))
        assert not result & (held_out - train)


def test_it_can_be_stopped() -> None:
    def poll() -> None:
        raise StoppedError("enough")

    graph = random_graph(6)
    edges = TrainEdges(graph)
    with pytest.raises(StoppedError):
        choose(
            edges, link_queries(graph, "valid"), {1.0: partial(scaled, neighbourhoods(graph).matrix, 1.0)}, poll=poll
        )
