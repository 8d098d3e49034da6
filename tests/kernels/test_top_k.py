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
    scores[torch.from_numpy(rng.random((rows, columns)) < 0.2)] = -torch.inf
    k = int(rng.integers(1, columns + 1))
    values, found = top_k(scores, k, backend)
    wanted, order = by_sorting(scores, k)
    assert np.array_equal(found.numpy(), order)
    assert np.array_equal(values.numpy(), wanted)


@pytest.mark.parametrize("backend", ["torch", "numba"])
@pytest.mark.parametrize("order", ["rising", "falling"])
def test_sorted_rows_are_no_special_case(backend: Backend, order: str) -> None:
    scores = torch.arange(1000, dtype=torch.float64).repeat(3, 1)
    scores = scores if order == "rising" else scores.flip(1)
    values, found = top_k(scores, 7, backend)
    assert values[2].tolist() == [999, 998, 997, 996, 995, 994, 993]
    assert found[0, 0] == (999 if order == "rising" else 0)
