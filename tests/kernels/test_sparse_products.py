"""Sparse times sparse as a dense matrix: the product of the dense ones, with and without compiled code."""

import numpy as np
import pytest
import scipy.sparse as sp

from graphmill.kernels import sparse_products as module
from graphmill.kernels.sparse_products import sparse_product


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("shape", [(0, 5, 3), (4, 0, 3), (1, 1, 1), (300, 50, 400)])
def test_it_is_the_product(shape: tuple[int, int, int], compiled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "has_numba", lambda: compiled)
    rng = np.random.default_rng(0)
    left, right = (
        sp.random(*sizes, 0.3, format="csr", dtype=np.float32, random_state=rng) for sizes in (shape[:2], shape[1:])
    )
    product = sparse_product(left, right)
    assert product.dtype == np.float32
    np.testing.assert_allclose(product, left.toarray() @ right.toarray(), rtol=1e-5, atol=1e-6)
