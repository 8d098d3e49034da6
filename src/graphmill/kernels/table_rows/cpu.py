"""``table_rows``' sums for the CPU, compiled. A thread owns some rows of the table and looks at all that come."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from graphmill.kernels.runtime.compiled_math import owner
from graphmill.kernels.runtime.jit import jit
from graphmill.kernels.runtime.team import over_ranges

_jit = jit(nogil=True, error_model="numpy")


def add_rows_(into: Tensor, rows: Tensor, values: Tensor) -> None:
    """See :func:`graphmill.kernels.table_rows.add_rows_`; all contiguous, one dtype."""
    arrays = (into.detach().numpy(), rows.numpy(), values.detach().numpy())
    threads = max(1, min(torch.get_num_threads(), len(into)))
    over_ranges(_add, (*arrays, threads), threads, values.numel())


@_jit
def _add(into: Any, rows: Any, values: Any, parts: int, first: int, last: int) -> None:
    width = into.shape[1]
    for i in range(rows.shape[0]):
        row = rows[i]
        if first <= owner(row, parts) < last:
            for j in range(width):
                into[row, j] += values[i, j]
