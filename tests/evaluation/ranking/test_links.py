"""The metrics of a link ranking, per relation, macro and micro, by degree, and what they say of baselines."""

import json
import math

import numpy as np
import pytest
import torch

from graphmill.errors import InputError
from graphmill.evaluation.baselines.links import DegreeScorer, SimilarityScorer
from graphmill.evaluation.ranking.links import LinkRanking, rank_links
from graphmill.evaluation.ranking.queries import LinkQueries, link_queries, relation_queries

from .graphs import ChanceScorer, FakeGraph, random_graph

NOTHING = np.zeros(0, dtype=np.int64)


class Table:
    def __init__(self, *scores: np.ndarray) -> None:
        self.scores = scores

    def score_targets(self, relation: int, heads: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(self.scores[relation][heads])


def two_relations() -> tuple[Table, LinkQueries]:
    """Relation 0: ranks 1 and 3 of 4; relation 1: one query, rank 1.5 of 2 (a tie)."""
    first = relation_queries(0, "first", (np.array([0, 1]), np.array([0, 1])), (NOTHING, NOTHING), (), 2, 4)
    second = relation_queries(1, "second", (np.array([0]), np.array([1])), (np.array([1]), np.array([1])), (), 2, 2)
    scores = np.array([[0.9, 0.1, 0.2, 0.3], [0.8, 0.5, 0.9, 0.1]]), np.array([[0.4, 0.4], [0.0, 0.0]])
    return Table(*scores), LinkQueries("test", (first, second))


def test_metrics_worked_by_hand() -> None:
    ranking = rank_links(*two_relations(), ks=(1, 2))
    first, second = (relation.metrics for relation in ranking.relations)
    assert (first["mrr"], first["mr"], first["hits@1"], first["hits@2"]) == (pytest.approx(2 / 3), 2.0, 0.5, 0.5)
    assert first["amri"] == pytest.approx(1 - 1.0 / 1.5)  # ranks less one: mean 1; at chance 1.5
    assert (second["mrr"], second["hits@1"], second["hits@2"]) == (pytest.approx(1 / 1.5), 0.0, 1.0)
    assert second["amri"] == 0.0
    assert ranking.macro["mrr"] == pytest.approx(2 / 3)
    assert ranking.micro["mrr"] == pytest.approx((1 + 1 / 3 + 1 / 1.5) / 3)
    assert ranking.micro["amri"] == pytest.approx(1 - (0 + 2 + 0.5) / 3 / ((1.5 + 1.5 + 0.5) / 3))
    assert ranking.queries == 3
    assert math.isnan(ranking.signal)  # three queries say nothing about chance


@pytest.mark.parametrize("batch_rows", [1, 7, 1000])
def test_the_block_size_changes_nothing(batch_rows: int) -> None:
    queries = link_queries(random_graph(3), "test")
    rng = np.random.default_rng(0)
    table = Table(*(rng.random((len(r.known_indptr) - 1, r.candidates)) for r in queries.relations))
    assert rank_links(table, queries, batch_rows=batch_rows) == rank_links(table, queries)


def test_relations_without_queries_are_left_out_of_the_mean() -> None:
    table, queries = two_relations()
    empty = relation_queries(2, "empty", (NOTHING, NOTHING), (np.array([0]), np.array([0])), (), 2, 2)
    wider = LinkQueries("test", (*queries.relations, empty))
    assert rank_links(table, wider) == rank_links(table, queries)


def test_the_result_is_strict_json() -> None:
    value = json.loads(json.dumps(rank_links(*two_relations()).to_dict(), allow_nan=False))
    assert value["signal"] is None
    assert value["relations"][1]["metrics"]["mrr"] == pytest.approx(2 / 3)


def popular_graph(seed: int = 0) -> FakeGraph:
    """Links are made by popularity alone: nothing is to be learned beyond degrees."""
    rng = np.random.default_rng(seed)
    popularity = 1 / np.arange(1, 201) ** 0.8
    pairs = np.stack([rng.integers(0, 3000, 4000), rng.choice(200, 4000, p=popularity / popularity.sum())], axis=1)
    pairs = np.unique(pairs, axis=0)
    return FakeGraph(
        {"a": 3000, "b": 200}, [("a", "r", "b", np.column_stack([pairs, rng.choice([0, 2], len(pairs), p=[0.7, 0.3])]))]
    )


def test_degree_only_scores_training_links_and_nothing_else() -> None:
    queries = link_queries(random_graph(1), "test")
    scorer = DegreeScorer(queries)
    for relation in queries.relations:
        scores = scorer.score_targets(relation.relation, np.arange(3)).numpy()
        np.testing.assert_array_equal(scores, np.tile(relation.train_degree, (3, 1)))


def test_random_scores_are_chance_and_blocks_change_nothing() -> None:
    queries = link_queries(popular_graph(), "test")
    scorer = ChanceScorer(queries, seed=1)
    ranking = rank_links(scorer, queries)
    assert ranking == rank_links(scorer, queries, batch_rows=3)
    assert ranking.macro["amri"] == pytest.approx(0, abs=0.08)
    assert ranking.signal < 0.1


def nearby_graph() -> tuple[np.ndarray, FakeGraph]:
    """Two types of points on a circle; neighbours on it are linked."""
    rng = np.random.default_rng(0)
    angle = np.concatenate([np.sort(rng.uniform(0, 2 * np.pi, 100)), np.sort(rng.uniform(0, 2 * np.pi, 80))])
    vectors = np.stack([np.cos(angle), np.sin(angle)], axis=1).astype(np.float32) * rng.lognormal(size=(180, 1))
    close = np.argsort(-np.cos(angle[:100, None] - angle[None, 100:]), axis=1)[:, :4]
    rows = [(a, b, rng.choice([0, 2])) for a in range(100) for b in close[a]]
    return vectors.astype(np.float32), FakeGraph({"a": 100, "b": 80}, [("a", "near", "b", np.array(rows))])


def test_vectors_alone_rank_links_by_cosine_and_shuffling_is_seen_by_the_signal_only_here() -> None:
    vectors, graph = nearby_graph()
    queries = link_queries(graph, "test")
    ranking = rank_links(SimilarityScorer(vectors, graph), queries)
    assert ranking.signal > 0.9
    assert ranking.macro["hits@10"] == 1.0
    shuffled = np.random.default_rng(1).permutation(vectors)
    assert rank_links(SimilarityScorer(shuffled, graph), queries).signal < 0.15
    with pytest.raises(InputError, match="179 rows and the graph 180 nodes"):
        SimilarityScorer(vectors[1:], graph)


def test_an_inverted_similarity_still_is_a_signal() -> None:
    vectors, graph = nearby_graph()
    vectors[100:] *= -1
    ranking = rank_links(SimilarityScorer(vectors, graph), link_queries(graph, "test"))
    assert ranking.macro["amri"] < -0.9
    assert ranking.signal > 0.9


def test_a_ranking_is_comparable_by_value() -> None:
    ranking = rank_links(*two_relations())
    assert isinstance(ranking, LinkRanking)
    assert ranking != rank_links(*two_relations(), ks=(1,))
