"""Negatives are unknown candidates, drawn with exactly the stated weights; the AUC is the pairwise probability."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphmill.evaluation.ranking.negatives import auc, degree_weights, draw_negatives, uniform_weights
from graphmill.evaluation.ranking.queries import link_queries, relation_queries

from .graphs import random_graph

NOTHING = np.zeros(0, dtype=np.int64)


@given(st.integers(0, 10**6), st.booleans())
@settings(max_examples=30, deadline=None)
def test_no_negative_is_a_known_link_or_has_no_weight(seed: int, by_degree: bool) -> None:
    for queries in link_queries(random_graph(seed), "test").relations:
        weights = degree_weights(queries) if by_degree else uniform_weights(queries)
        drawn = draw_negatives(queries, weights, 20, 0, "x")
        assert drawn.shape == (len(queries.heads), 20)
        for head, row in zip(queries.heads, drawn, strict=True):
            known = queries.known_tails[queries.known_indptr[head] : queries.known_indptr[head + 1]]
            possible = np.setdiff1d(np.flatnonzero(weights), known)
            assert set(row.tolist()) <= (set(possible.tolist()) if len(possible) else {-1})


def test_negatives_are_drawn_in_proportion_to_their_weight() -> None:
    heads, tails = np.zeros(2, dtype=np.int64), np.array([1, 4])
    queries = relation_queries(0, "r", (heads, tails), (NOTHING, NOTHING), (), 1, 6)
    weights = np.array([1, 50, 2, 0, 50, 5])
    drawn = draw_negatives(queries, weights, 20_000, 0, "x")
    counts = np.bincount(drawn.ravel(), minlength=6) / drawn.size
    np.testing.assert_allclose(counts, [1 / 8, 0, 2 / 8, 0, 0, 5 / 8], atol=0.01)


def test_draws_depend_on_seed_kind_and_relation_only() -> None:
    queries = link_queries(random_graph(0), "test").relations[0]
    ones = uniform_weights(queries)
    first = draw_negatives(queries, ones, 5, 0, "x")
    np.testing.assert_array_equal(draw_negatives(queries, ones, 5, 0, "x"), first)
    assert (draw_negatives(queries, ones, 5, 1, "x") != first).any()
    assert (draw_negatives(queries, ones, 5, 0, "y") != first).any()


def test_a_head_linked_to_everything_has_no_negatives() -> None:
    queries = relation_queries(0, "r", (np.array([0, 1]), np.array([0, 0])), (np.array([0]), np.array([1])), (), 2, 2)
    assert draw_negatives(queries, np.ones(2, dtype=np.int64), 3, 0, "x").tolist() == [[-1] * 3, [1] * 3]


@given(st.lists(st.integers(0, 6), min_size=1, max_size=30), st.lists(st.integers(0, 6), min_size=1, max_size=30))
@settings(max_examples=50, deadline=None)
def test_auc_is_the_share_of_pairs_won_with_ties_as_halves(positives: list[int], negatives: list[int]) -> None:
    won = np.mean([(p > n) + 0.5 * (p == n) for p in positives for n in negatives])
    assert auc(np.array(positives, dtype=float), np.array(negatives, dtype=float)) == pytest.approx(won)


def test_auc_without_negatives_is_undefined() -> None:
    assert np.isnan(auc(np.ones(3), np.zeros(0)))
