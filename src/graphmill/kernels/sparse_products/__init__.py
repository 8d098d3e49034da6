"""The product of two sparse matrices as a dense one, for scores by weights between items.

SciPy would count the entries of the product first, and write it as a sparse matrix.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from graphmill.kernels.runtime.threads import has_numba

_ROWS = 256


def sparse_product(left: sp.csr_matrix, right: sp.csr_matrix) -> NDArray[np.float32]:
    """``left`` [R, n] times ``right`` [n, m] → float32 [R, m]. Sums have the order of a row's entries."""
    if not has_numba():
        out = np.empty((left.shape[0], right.shape[1]), np.float32)
        for first in range(0, len(out), _ROWS):  # the sparse product of all rows can be as large as several dense ones
            out[first : first + _ROWS] = (left[first : first + _ROWS] @ right).toarray()
        return out
    from graphmill.kernels.sparse_products import cpu as sparse_products_cpu

    return sparse_products_cpu.sparse_product(left, right)
