"""Neighbours are those of the full similarity matrix, in a stated order."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphmill.errors import InputError
from graphmill.evaluation.health import neighbours
from graphmill.evaluation.health.neighbours import Vectors


@given(st.integers(0, 10**6), st.sampled_from([1, 7, 1000]))
@settings(max_examples=30, deadline=None)
def test_neighbours_equal_a_full_sort(seed: int, block_rows: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(neighbours, "BLOCK_SIMILARITIES", 3 * block_rows)
        _neighbours_equal_a_full_sort(seed)


def _neighbours_equal_a_full_sort(seed: int) -> None:
    rng = np.random.default_rng(seed)
    X = rng.integers(-2, 3, (60, 4)).astype(np.float32) + rng.standard_normal((60, 4)).astype(np.float32)
    X[rng.integers(0, 60, 5)] = X[3]  # ties
    result = Vectors(X).nearest(np.array([3, 10, 59]), 7)
    wide = X.astype(np.float64)
    wide /= np.linalg.norm(wide, axis=1, keepdims=True)
    for query, rows, values in zip([3, 10, 59], result.rows, result.similarities, strict=True):
        similarity = np.einsum("j,ij->i", wide[query], wide)
        others = [row for row in range(60) if row != query]
        expected = sorted(others, key=lambda row: (-round(similarity[row], 12), row))[:7]
        assert rows.tolist() == expected
        np.testing.assert_allclose(values, similarity[expected], atol=1e-12)


@pytest.mark.parametrize("block_rows", [1, 7, 1000])
def test_rows_without_a_direction_come_last(block_rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(neighbours, "BLOCK_SIMILARITIES", block_rows)
    X = np.array([[1, 0], [0, 0], [-1, 0], [np.nan, 1], [0, 1]], dtype=np.float32)
    result = Vectors(X).nearest(np.array([0]), 4)
    assert result.rows.tolist() == [[4, 2, 1, 3]]
    assert result.similarities.tolist() == [[0, -1, -np.inf, -np.inf]]


def test_as_many_neighbours_as_there_are_other_rows() -> None:
    X = np.eye(3, dtype=np.float32)
    assert Vectors(X).nearest(np.array([1]), 2).rows.tolist() == [[0, 2]]
    for k in (0, 3):
        with pytest.raises(InputError, match="possible are 1 to 2"):
            Vectors(X).nearest(np.array([1]), k)


@pytest.fixture(scope="module")
def vectors() -> Vectors:
    rng = np.random.default_rng(0)
    values = (rng.normal(size=(20, 24))[rng.integers(20, size=1500)] + 0.6 * rng.normal(size=(1500, 24))).astype(
        np.float32
    )
    values[5] = 0
    values[7, 3] = np.nan
    values[9] = values[8]
    return Vectors(values)


def test_a_row_without_a_direction_is_nobodys_neighbour(vectors: Vectors) -> None:
    rows, cosines = vectors.around(3, 1500)
    assert len(rows) == 1500 - 3  # itself, a row of zeros, a row that is not finite
    assert not {3, 5, 7} & set(rows.tolist())
    assert np.isfinite(cosines).all()
    assert not len(vectors.around(5, 10)[0])


def test_neighbours_of_some_rows_only(vectors: Vectors) -> None:
    among = np.arange(1500) % 2 == 0
    rows, _ = vectors.around(3, 40, among)
    everything = vectors.around(3, 1500)[0]
    assert rows.tolist() == everything[everything % 2 == 0][:40].tolist()


@pytest.mark.parametrize("scale", [1e-60, 1e-44, 1e30, 1e100])
def test_lengths_do_not_count_however_large_or_small(scale: float) -> None:
    rows = np.random.default_rng(0).standard_normal((50, 8))
    stretched = rows * np.where(np.arange(50) % 2, 1.0, scale)[:, None]
    with np.errstate(all="raise", under="ignore"):
        result = Vectors(stretched).nearest(np.arange(50), 3)
    np.testing.assert_array_equal(result.rows, Vectors(rows).nearest(np.arange(50), 3).rows)
