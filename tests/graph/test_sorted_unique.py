"""Distinct numbers by sorting: what NumPy gives."""

from __future__ import annotations

import numpy as np
import pytest

from graphmill.graph.sorted_unique import in_sorted, sorted_unique


@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.uint8])
@pytest.mark.parametrize("shape", [(0,), (1,), (500,), (20, 30)])
def test_the_same_as_numpys(dtype: type, shape: tuple[int, ...]) -> None:
    values = np.random.default_rng(0).integers(0, 90, shape).astype(dtype)
    before = values.copy()
    result = sorted_unique(values)
    np.testing.assert_array_equal(result, np.unique(values))
    assert result.dtype == dtype
    np.testing.assert_array_equal(values, before)


@pytest.mark.parametrize("count", [0, 1, 40])
@pytest.mark.parametrize("shape", [(0,), (500,), (20, 30)])
def test_which_are_among_those_in_order(count: int, shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    values, ordered = rng.integers(-5, 90, shape), sorted_unique(rng.integers(0, 80, count))
    np.testing.assert_array_equal(in_sorted(values, ordered), np.isin(values, ordered))
