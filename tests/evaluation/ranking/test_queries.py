"""Queries of a graph: distinct links of one split, filtered by those of all splits."""

from pathlib import Path

import numpy as np
import pytest

from graphmill.errors import InputError
from graphmill.evaluation.ranking.queries import RelationQueries, link_queries
from graphmill.graph.build import build_graph
from graphmill.graph.settings import GraphSettings, SplitSettings
from tests.graph.tables import random_tables

from .graphs import FakeGraph, random_graph

ROWS = np.array([[1, 2, 0], [0, 1, 2], [0, 1, 2], [0, 3, 1], [1, 0, 2], [0, 0, 0]])  # one test link is written twice


def test_queries_filters_and_degrees_of_a_small_graph() -> None:
    graph = FakeGraph({"a": 2, "b": 4}, [("a", "r", "b", ROWS)])
    queries = link_queries(graph, "test")
    (relation,) = queries.relations
    assert (queries.split, queries.total, relation.name) == ("test", 2, "a · r · b")
    assert list(zip(relation.heads.tolist(), relation.tails.tolist(), strict=True)) == [(0, 1), (1, 0)]
    assert relation.known_indptr.tolist() == [0, 3, 5]
    assert relation.known_tails.tolist() == [0, 1, 3, 0, 2]
    assert relation.train_degree.tolist() == [1, 0, 1, 0]


def test_fewer_queries_are_drawn_by_seed_and_keep_the_whole_filter() -> None:
    graph = random_graph(0)
    whole = link_queries(graph, "test")
    few = link_queries(graph, "test", max_per_relation=5, seed=1)
    again = link_queries(graph, "test", max_per_relation=5, seed=1)
    other = link_queries(graph, "test", max_per_relation=5, seed=2)
    for all_of, some, same in zip(whole.relations, few.relations, again.relations, strict=True):
        assert len(some.heads) == min(5, len(all_of.heads))
        request = set(zip(some.heads.tolist(), some.tails.tolist(), strict=True))
        assert request <= set(zip(all_of.heads.tolist(), all_of.tails.tolist(), strict=True))
        np.testing.assert_array_equal(some.known_tails, all_of.known_tails)
        np.testing.assert_array_equal(some.tails, same.tails)
    assert few.relations[0].tails.tolist() != other.relations[0].tails.tolist()


def test_a_split_without_links_is_refused_with_the_remedy() -> None:
    graph = FakeGraph({"a": 2, "b": 4}, [("a", "r", "b", ROWS[ROWS[:, 2] == 0])])
    with pytest.raises(InputError, match=r"no link in its valid split; .*split\.valid above 0"):
        link_queries(graph, "valid")
    with pytest.raises(InputError, match="no split 'dev'"):
        link_queries(graph, "dev")


def test_a_query_outside_its_filter_is_a_mistake() -> None:
    arrays = {
        "known_indptr": np.array([0, 1]),
        "train_degree": np.zeros(3, dtype=int),
        "head_degree": np.zeros(1, dtype=int),
    }
    with pytest.raises(ValueError, match="among the known"):
        RelationQueries(0, "r", np.array([0]), np.array([2]), 3, known_tails=np.array([1]), **arrays)
    with pytest.raises(ValueError, match="sorted"):
        RelationQueries(0, "r", np.array([0, 0]), np.array([1, 1]), 3, known_tails=np.array([1]), **arrays)


def test_queries_of_a_graph_on_disk(tmp_path: Path) -> None:
    """A true typed graph, whose relations have their reverses: both directions ask for the same held-out pairs."""
    tables = random_tables(0, {"drug": 20, "gene": 30}, {"binds": ("drug", "gene", 150)})
    graph = build_graph(*tables, GraphSettings(split=SplitSettings(valid=0.1, test=0.2)), tmp_path / "graph")
    forward, backward = link_queries(graph, "test").relations
    assert (forward.name, backward.candidates) == ("drug · binds · gene", 20)
    request = set(zip(forward.heads.tolist(), forward.tails.tolist(), strict=True))
    assert len(request) == 30
    assert request == set(zip(backward.tails.tolist(), backward.heads.tolist(), strict=True))
    edges = graph.edges(0)
    held_out = np.asarray(edges.split) == 2
    assert request == set(zip(edges.src[held_out].tolist(), edges.dst[held_out].tolist(), strict=True))
    assert len(forward.known_tails) == 150
    assert forward.train_degree.sum() == (np.asarray(edges.split) == 0).sum()


def test_a_graph_of_self_loops_says_that_they_are_never_held_out() -> None:
    loops = np.array([[i, i, 0] for i in range(4)])
    graph = FakeGraph({"a": 4}, [("a", "r", "a", loops)])
    with pytest.raises(InputError, match=r"4 edges joins a node with itself.*columns"):
        link_queries(graph, "valid")


def test_a_graph_too_small_to_hold_an_edge_out_says_so_and_does_not_blame_the_setting(tmp_path: Path) -> None:
    tables = random_tables(0, {"drug": 3, "gene": 3}, {"binds": ("drug", "gene", 2)})
    graph = build_graph(*tables, GraphSettings(split=SplitSettings(valid=0.1, test=0.1)), tmp_path / "graph")
    with pytest.raises(InputError, match=r"too small to be judged: add edges"):
        link_queries(graph, "valid")
