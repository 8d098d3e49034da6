"""``sparse_product`` for the CPU, compiled."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from graphmill.kernels.runtime.jit import jit
from graphmill.kernels.runtime.threads import over_ranges

_jit = jit(nogil=True, error_model="numpy")


def sparse_product(left: sp.csr_matrix, right: sp.csr_matrix) -> NDArray[np.float32]:
    """See :func:`graphmill.kernels.sparse_products.sparse_product`."""
    out = np.zeros((left.shape[0], right.shape[1]), np.float32)
    matrices = (left.indptr, left.indices, left.data, right.indptr, right.indices, right.data)
    over_ranges(_multiply, (*matrices, out), len(out), out.size)
    return out


@_jit
def _multiply(
    starts: Any, columns: Any, values: Any, ends: Any, items: Any, weights: Any, out: Any, first: int, last: int
) -> None:
    for row in range(first, last):
        line = out[row]
        for at in range(starts[row], starts[row + 1]):
            value, column = values[at], columns[at]
            for entry in range(ends[column], ends[column + 1]):
                line[items[entry]] += value * weights[entry]
