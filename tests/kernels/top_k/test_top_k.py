"""The k best of each row: equal to sorting everything, ties included, on every backend."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from graphmill.kernels.top_k import Backend, top_k


def by_sorting(scores: torch.Tensor, k: int) -> tuple[np.ndarray, np.ndarray]:
    array = scores.numpy()
    order = np.lexsort((np.broadcast_to(np.arange(array.shape[1]), array.shape), -array), axis=1)[:, :k]
    return np.take_along_axis(array, order, 1), order


@pytest.mark.parametrize("backend", ["torch", "numba"])
@settings(deadline=None)
@given(seed=st.integers(0, 2**16), rows=st.integers(1, 5), columns=st.integers(1, 300), levels=st.integers(1, 400))
def test_it_is_what_sorting_finds(backend: Backend, seed: int, rows: int, columns: int, levels: int) -> None:
    rng = np.random.default_rng(seed)
    scores = torch.from_numpy(rng.integers(0, levels, (rows, columns)).astype(np.float32))
    row, item = np.nonzero(rng.random((rows, columns)) < 0.2)
    indptr = np.concatenate(([0], np.cumsum(np.bincount(row, minlength=rows))))
    k = int(rng.integers(1, columns + 1))
    given = scores.clone()
    values, result = top_k(scores, k, (indptr, item.astype(np.int64)), backend)
    assert torch.equal(scores, given)
    scores[torch.from_numpy(row), torch.from_numpy(item)] = -torch.inf
    wanted, order = by_sorting(scores, k)
    assert np.array_equal(result.numpy(), order)
    assert np.array_equal(values.numpy(), wanted)


@pytest.mark.parametrize("backend", ["torch", "numba"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("columns", "k"), [(1024, 1), (1024, 300), (1025, 9), (2500, 3), (2500, 60), (4173, 20)])
@pytest.mark.parametrize("levels", [2, 40, 100_000])
def test_long_rows_are_what_sorting_finds(
    backend: Backend, dtype: torch.dtype, columns: int, k: int, levels: int
) -> None:
    rng = np.random.default_rng(columns + k + levels)
    scores = torch.from_numpy(rng.integers(-levels, levels, (6, columns))).to(dtype)
    out = rng.random(scores.shape) < 0.1
    out[1, 128:256] = out[2, -80:] = True  # whole blocks
    out[3, np.argsort(-scores[3].numpy())[: columns // 2]] = True  # the best ones
    out[4, k // 2 :] = True  # of the k some are left out
    items = np.nonzero(out)[1]
    values, result = top_k(scores, k, (np.concatenate(([0], np.cumsum(out.sum(1)))), items), backend)
    wanted, order = by_sorting(scores.masked_fill(torch.from_numpy(out), -torch.inf), k)
    assert np.array_equal(result.numpy(), order)
    assert np.array_equal(values.numpy(), wanted)


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("k", [3, 100])
def test_a_score_that_is_not_finite_is_found_wherever_it_is(bad: float, dtype: torch.dtype, k: int) -> None:
    scores = torch.randn(2, 2 * 1024 + 3 * 64 + 2 * 16 + 3, dtype=dtype)
    for column in (0, 17, 40, 1023, 1024, 2047, 2048, 2100, 2239, 2240, 2271, 2272, 2274):
        changed = scores.clone()
        changed[1, column] = bad
        with pytest.raises(ValueError, match="not finite"):
            top_k(changed, k)
    assert bool(torch.isfinite(top_k(scores, k)[0]).all())


@pytest.mark.parametrize("backend", ["torch", "numba"])
@pytest.mark.parametrize("order", ["rising", "falling"])
def test_sorted_rows_are_no_special_case(backend: Backend, order: str) -> None:
    scores = torch.arange(1000, dtype=torch.float64).repeat(3, 1)
    scores = scores if order == "rising" else scores.flip(1)
    values, result = top_k(scores, 7, backend=backend)
    assert values[2].tolist() == [999, 998, 997, 996, 995, 994, 993]
    assert result[0, 0] == (999 if order == "rising" else 0)


@pytest.mark.parametrize("backend", ["torch", "numba"])
@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_score_that_is_not_finite_is_refused(backend: Backend, bad: float, dtype: torch.dtype) -> None:
    scores = torch.randn(3, 200, dtype=dtype)
    scores[1, 130] = bad
    with pytest.raises(ValueError, match="not finite"):
        top_k(scores, 5, backend=backend)


@pytest.mark.parametrize("backend", ["torch", "numba"])
def test_what_is_left_out_twice_is_left_out_once(backend: Backend) -> None:
    left_out = np.array([0, 3, 3]), np.array([199, 4, 199])
    values, result = top_k(torch.arange(200.0).repeat(2, 1), 2, left_out, backend)
    assert result.tolist() == [[198, 197], [199, 198]]
    assert values[0].tolist() == [198.0, 197.0]


@pytest.mark.parametrize("backend", ["torch", "numba"])
def test_columns_that_are_not_there_and_lists_of_nothing(backend: Backend) -> None:
    for column in (-1, 200):
        with pytest.raises(IndexError):
            top_k(torch.randn(1, 200), 2, (np.array([0, 1]), np.array([column])), backend)
    values, result = top_k(torch.randn(3, 9), 0, backend=backend)
    assert values.shape == result.shape == (3, 0)


@pytest.mark.parametrize("backend", ["torch", "numba"])
def test_no_rows(backend: Backend) -> None:
    values, result = top_k(torch.empty(0, 9), 3, backend=backend)
    assert values.shape == result.shape == (0, 3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("columns", [64, 70, 1000, 1100])
def test_numbers_near_the_largest_are_finite(dtype: torch.dtype, columns: int) -> None:
    for number in (torch.finfo(dtype).max, torch.finfo(dtype).min, torch.finfo(dtype).max / 10):
        values, result = top_k(torch.full((2, columns), number, dtype=dtype), 3)
        assert bool((values == number).all())
        assert result.tolist() == [[0, 1, 2]] * 2
