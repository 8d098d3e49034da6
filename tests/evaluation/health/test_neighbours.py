"""Neighbours are those of the full similarity matrix, in a stated order; two embeddings are compared by them."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphmill.errors import InputError
from graphmill.evaluation.health.neighbours import nearest, neighbour_overlap


@given(st.integers(0, 10**6), st.sampled_from([1, 7, 1000]), st.sampled_from(["cosine", "dot"]))
@settings(max_examples=30, deadline=None)
def test_neighbours_equal_a_full_sort(seed: int, block_rows: int, metric: str) -> None:
    rng = np.random.default_rng(seed)
    X = rng.integers(-2, 3, (60, 4)).astype(np.float32) + rng.standard_normal((60, 4)).astype(np.float32)
    X[rng.integers(0, 60, 5)] = X[3]  # ties
    found = nearest(X, np.array([3, 10, 59]), 7, metric, block_rows=block_rows)
    wide = X.astype(np.float64)
    if metric == "cosine":
        wide /= np.linalg.norm(wide, axis=1, keepdims=True)
    for query, rows, values in zip([3, 10, 59], found.rows, found.similarities, strict=True):
        similarity = np.einsum("j,ij->i", wide[query], wide)
        others = [row for row in range(60) if row != query]
        expected = sorted(others, key=lambda row: (-round(similarity[row], 12), row))[:7]
        assert rows.tolist() == expected
        np.testing.assert_allclose(values, similarity[expected], atol=1e-12)


@pytest.mark.parametrize("block_rows", [1, 7, 1000])
def test_rows_without_a_direction_come_last(block_rows: int) -> None:
    X = np.array([[1, 0], [0, 0], [-1, 0], [np.nan, 1], [0, 1]], dtype=np.float32)
    found = nearest(X, np.array([0]), 4, block_rows=block_rows)
    assert found.rows.tolist() == [[4, 2, 1, 3]]
    assert found.similarities.tolist() == [[0, -1, -np.inf, -np.inf]]


def test_as_many_neighbours_as_there_are_other_rows() -> None:
    X = np.eye(3, dtype=np.float32)
    assert nearest(X, np.array([1]), 2).rows.tolist() == [[0, 2]]
    for k in (0, 3):
        with pytest.raises(InputError, match="possible are 1 to 2"):
            nearest(X, np.array([1]), k)


def test_the_overlap_of_an_embedding_with_itself_in_other_coordinates_is_one() -> None:
    rng = np.random.default_rng(0)
    A = rng.standard_normal((200, 8))
    q, _ = np.linalg.qr(rng.standard_normal((8, 8)))
    order = rng.permutation(200)
    ids = np.array([f"n{i}" for i in range(200)], dtype=object)
    found = neighbour_overlap(A, (3 * A @ q)[order], ids, ids[order], k=5)
    assert (found.mean, found.shared, found.queries) == (1.0, 200, 200)


def test_the_overlap_counts_only_shared_nodes_and_is_worked_by_hand() -> None:
    A = np.array([[0.0], [1.0], [2.1], [3.3], [50.0]])
    circle = np.concatenate([np.cos(A / 10), np.sin(A / 10)], axis=1)  # cosine orders by distance of the angle
    B = circle.copy()
    B[2] = circle[0]  # c moves to a
    found = neighbour_overlap(circle, B[:4], np.array(list("abcde")), np.array(list("abcd")), k=1)
    # nearest in A and in B. a: b, c. b: a, a (c ties, the first wins). c: b, a. d: c, b.
    assert found.by_query.tolist() == [0.0, 1.0, 0.0, 0.0]
    assert (found.mean, found.shared) == (0.25, 4)


def test_unrelated_embeddings_overlap_by_chance_and_queries_are_drawn_by_seed() -> None:
    rng = np.random.default_rng(0)
    A, B = rng.standard_normal((2, 1000, 8))
    ids = np.arange(1000)
    found = neighbour_overlap(A, B, ids, ids, k=10, queries=300)
    assert found.queries == 300
    assert found.mean == pytest.approx(10 / 2000, abs=0.004)
    again = neighbour_overlap(A, B, ids, ids, k=10, queries=300)
    np.testing.assert_array_equal(again.by_query, found.by_query)


def test_ids_that_cannot_be_matched_are_refused() -> None:
    X = np.eye(4)
    with pytest.raises(InputError, match="share 2 ids; at least 4"):
        neighbour_overlap(X, X, np.array([1, 2, 3, 4]), np.array([3, 4, 5, 6]), k=3)
    with pytest.raises(InputError, match="second embedding has repeated ids"):
        neighbour_overlap(X, X, np.array([1, 2, 3, 4]), np.array([1, 1, 3, 4]), k=3)
