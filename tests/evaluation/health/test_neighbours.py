"""Neighbours are those of the full similarity matrix, in a stated order."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphmill.errors import InputError
from graphmill.evaluation.health.neighbours import nearest


@given(st.integers(0, 10**6), st.sampled_from([1, 7, 1000]))
@settings(max_examples=30, deadline=None)
def test_neighbours_equal_a_full_sort(seed: int, block_rows: int) -> None:
    rng = np.random.default_rng(seed)
    X = rng.integers(-2, 3, (60, 4)).astype(np.float32) + rng.standard_normal((60, 4)).astype(np.float32)
    X[rng.integers(0, 60, 5)] = X[3]  # ties
    found = nearest(X, np.array([3, 10, 59]), 7, block_rows=block_rows)
    wide = X.astype(np.float64)
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
