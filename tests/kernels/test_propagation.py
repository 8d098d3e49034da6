"""Sparse products of graph recommenders: equal to the dense product, in values and gradients."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from graphmill.kernels.propagation import SparseMatrix, propagate, sparse_matrix


def dense(matrix: SparseMatrix) -> torch.Tensor:
    out = torch.zeros(matrix.shape, dtype=torch.float64)
    rows = matrix.forward
    return out.index_put_((rows.row, rows.column), rows.value.double(), accumulate=True)


def random_matrix(seed: int, rows: int, columns: int, edges: int) -> SparseMatrix:
    rng = np.random.default_rng(seed)
    hub = rng.random(edges) < 0.5  # one row with half of all edges, some rows without any, parallel entries
    row = np.where(hub, 0, rng.integers(0, max(rows // 2, 1), edges))
    return sparse_matrix(row, rng.integers(0, columns, edges), rng.normal(size=edges), (rows, columns))


@settings(deadline=None)
@given(seed=st.integers(0, 2**16), rows=st.integers(1, 40), columns=st.integers(1, 40), edges=st.integers(0, 200))
def test_the_product_and_its_gradient_are_those_of_the_dense_matrix(
    seed: int, rows: int, columns: int, edges: int
) -> None:
    matrix = random_matrix(seed, rows, columns, edges)
    x = torch.randn(columns, 5, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(rows, 5, dtype=torch.float64)
    out = propagate(matrix, x)
    torch.testing.assert_close(out, dense(matrix) @ x, rtol=1e-12, atol=1e-12)
    (out * weight).sum().backward()
    torch.testing.assert_close(x.grad, dense(matrix).T @ weight, rtol=1e-12, atol=1e-12)


def test_gradcheck() -> None:
    matrix = random_matrix(1, 7, 9, 30)
    x = torch.randn(9, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda t: propagate(matrix, t), (x,))


def test_a_matrix_without_entries_gives_zeros() -> None:
    nothing = np.zeros(0, np.int64)
    for shape in ((3, 4), (3, 0), (0, 4)):
        out = propagate(sparse_matrix(nothing, nothing, np.zeros(0), shape), torch.ones(shape[1], 2))
        assert out.shape == (shape[0], 2)
        assert not out.any()


def test_any_number_of_threads_gives_the_same_bits() -> None:
    matrix, x = random_matrix(3, 3000, 500, 40_000), torch.randn(500, 16)
    threads = torch.get_num_threads()
    try:
        result = []
        for count in (1, 2, 3):
            torch.set_num_threads(count)
            result.append(propagate(matrix, x))
    finally:
        torch.set_num_threads(threads)
    assert all(torch.equal(result[0], other) for other in result[1:])


def test_half_precision_rows_are_added_in_fp32() -> None:
    matrix = sparse_matrix(np.zeros(4096, np.int64), np.arange(4096), np.ones(4096), (1, 4096))
    out = propagate(matrix, torch.ones(4096, 2, dtype=torch.bfloat16))
    assert out.dtype == torch.bfloat16
    assert float(out[0, 0]) == 4096.0  # a sum in bfloat16 would stop at 256


def test_new_values_are_used_in_both_directions_without_sorting() -> None:
    matrix = random_matrix(4, 12, 15, 60)
    value = torch.randn(60)
    renewed = matrix.with_values(value)
    rows = matrix.forward
    wanted = torch.zeros(12, 15).index_put_((rows.row, rows.column), value, accumulate=True)
    x = torch.randn(15, 4, requires_grad=True)
    out = propagate(renewed, x)
    torch.testing.assert_close(out, wanted @ x, rtol=1e-5, atol=1e-5)
    out.sum().backward()
    torch.testing.assert_close(x.grad, wanted.T @ torch.ones(12, 4), rtol=1e-5, atol=1e-5)


def test_no_message_tensor_of_edges_times_width_is_made() -> None:
    from torch.utils._python_dispatch import TorchDispatchMode

    class Largest(TorchDispatchMode):
        numbers = 0

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            out = func(*args, **(kwargs or {}))
            if isinstance(out, torch.Tensor):
                self.numbers = max(self.numbers, out.numel())
            return out

    matrix, x = random_matrix(5, 100, 100, 200_000), torch.randn(100, 64, requires_grad=True)
    with Largest() as seen:
        propagate(matrix, x).sum().backward()
    assert 4 * seen.numbers <= 8 << 20  # the messages of all edges would be 12.8 million numbers
