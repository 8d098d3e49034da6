"""The k best of every row of scores, in one order whatever computes them: higher first, of equal ones the first column."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from graphmill.kernels.threads import has_numba

Backend = Literal["auto", "numba", "torch"]


def top_k(scores: Tensor, k: int, backend: Backend = "auto") -> tuple[Tensor, Tensor]:
    """Values and columns (int64) [B, k] of the k highest numbers of each row of ``scores`` [B, I], fp32 or float64.

    NaN is not allowed. On the CPU a compiled scan reads every number once; elsewhere torch sorts, with the same result.
    """
    use_numba = backend == "numba" or (backend == "auto" and scores.device.type == "cpu" and has_numba())
    if use_numba:
        from graphmill.kernels import top_k_numba

        return top_k_numba.top_k(scores.contiguous(), k)
    return _by_torch(scores, k)


def _by_torch(scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
    # torch.topk leaves the order of equal scores open: what ties with the last place is found again, in order of columns.
    last = torch.topk(scores, k, dim=1).values[:, -1:]
    above = scores > last
    tied = scores == last
    room = k - above.sum(1, keepdim=True)
    chosen = above | (tied & (tied.cumsum(1) <= room))
    columns = chosen.nonzero()[:, 1].view(-1, k)  # ascending columns
    values = scores.gather(1, columns)
    order = torch.argsort(values, dim=1, descending=True, stable=True)
    return values.gather(1, order), columns.gather(1, order)
