"""Broken rows are found one by one, whatever the block size."""

import numpy as np
import pytest

from graphmill.evaluation.health.figures import row_figures


@pytest.fixture
def X() -> np.ndarray:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 5)).astype(np.float32)
    X[3, 2] = np.nan
    X[4, 0] = -np.inf
    X[7] = 0
    X[8] *= 1e-9  # no direction beside the others
    X[20] = X[10]
    X[21] = X[10]
    X[30, 0], X[31] = 0.0, X[30]
    X[31, 0] = -0.0
    return X


@pytest.mark.parametrize("block_rows", [1, 7, 1000])
def test_each_kind_of_broken_row_is_marked(X: np.ndarray, block_rows: int) -> None:
    result = row_figures(X, block_rows)
    assert np.flatnonzero(~result.finite).tolist() == [3, 4]
    assert np.flatnonzero(result.dead).tolist() == [7, 8]
    assert np.flatnonzero(result.repeats).tolist() == [20, 21, 31]  # the first of each group is not a repeat
    assert np.isnan(result.norms[[3, 4]]).all()
    kept = result.live
    np.testing.assert_allclose(result.norms[kept], np.linalg.norm(X[kept].astype(np.float64), axis=1), rtol=1e-12)


def test_zero_rows_do_not_count_as_duplicates() -> None:
    X = np.zeros((10, 4), dtype=np.float32)
    X[0] = 1
    result = row_figures(X, 4)
    assert result.dead.sum() == 9
    assert not result.repeats.any()


def test_huge_values_are_finite() -> None:
    X = np.full((4, 8), 3e38, dtype=np.float32)
    X[1:] *= np.array([[0.5], [0.25], [0.125]], dtype=np.float32)
    result = row_figures(X, 4096)
    assert result.finite.all()
    assert not result.dead.any()


def test_norm_spread_is_relative() -> None:
    X = np.diag([1.0, 1.0, 3.0, 3.0]).astype(np.float32)
    assert row_figures(X, 4).norm_spread == pytest.approx(0.5)
    assert row_figures(X * 100, 4).norm_spread == pytest.approx(0.5)
