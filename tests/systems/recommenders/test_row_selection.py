"""Some rows of a sparse matrix: equal to those rows of the whole product, in values and gradients."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from graphmill.kernels.propagation import propagate
from graphmill.systems.recommenders import row_selection as row_selection
from graphmill.systems.recommenders.row_selection import select_rows, with_neighbours
from tests.kernels.test_propagation import random_matrix


@settings(deadline=None)
@given(
    seed=st.integers(0, 2**16),
    rows=st.integers(1, 30),
    columns=st.integers(1, 30),
    edges=st.integers(0, 150),
    wanted=st.integers(0, 40),
)
def test_selected_rows_are_rows_of_the_product(seed: int, rows: int, columns: int, edges: int, wanted: int) -> None:
    matrix = random_matrix(seed, rows, columns, edges)
    chosen = np.random.default_rng(seed).integers(0, rows, wanted)  # repeated, unordered, with empty rows
    x, y = (torch.randn(columns, 3, generator=torch.Generator().manual_seed(seed)).double() for _ in range(2))
    x.requires_grad_()
    y = x.detach().clone().requires_grad_()
    some, whole = propagate(select_rows(matrix, chosen), x), propagate(matrix, y)[torch.from_numpy(chosen)]
    assert torch.equal(some, whole)
    weight = torch.randn(wanted, 3, dtype=torch.float64)
    (some * weight).sum().backward()
    (whole * weight).sum().backward()
    torch.testing.assert_close(x.grad, y.grad, rtol=1e-12, atol=1e-12)


def test_both_orientations_hold_the_same_entries() -> None:
    cut = select_rows(random_matrix(7, 12, 9, 80), np.array([3, 0, 3, 5]))
    assert torch.equal(cut.transpose.value, cut.forward.value[cut.order])
    assert torch.equal(cut.transpose.column, cut.forward.row[cut.order])
    assert torch.equal(cut.transpose.row, cut.forward.column[cut.order])
    assert len(cut.transpose.indptr) == 10


@settings(deadline=None)
@given(seed=st.integers(0, 2**16), size=st.integers(1, 30), edges=st.integers(0, 150), wanted=st.integers(0, 10))
def test_rows_and_their_neighbours(seed: int, size: int, edges: int, wanted: int) -> None:
    matrix = random_matrix(seed, size, size, edges)
    rows = np.unique(np.random.default_rng(seed).integers(0, size, wanted))
    forward = matrix.forward
    of = np.isin(forward.row.numpy(), rows)
    expected = np.union1d(rows, forward.column.numpy()[of])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(row_selection, "_NEARLY_ALL", 2.0)
        patch.setattr(row_selection, "_MANY", 1000)
        result = with_neighbours(matrix, torch.from_numpy(rows))
    assert (result is None) == (len(rows) == 0)
    assert result is None or result.tolist() == expected.tolist()
    if result is not None and len(result) >= 0.9 * size:
        assert with_neighbours(matrix, torch.from_numpy(rows)) is None
