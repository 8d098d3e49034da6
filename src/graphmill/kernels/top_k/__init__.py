"""The k highest scores of every row, in the same order in all forms: higher scores first, then lower columns."""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from graphmill.kernels.runtime.threads import has_numba

Backend = Literal["auto", "numba", "torch"]


class NotFiniteError(ValueError):
    """A score is infinite or NaN."""


Left = tuple[NDArray[np.int64], NDArray[np.int64]]
"""Columns to leave out of each row, as CSR: ``items[indptr[r] : indptr[r + 1]]`` for row r. Repetitions are allowed."""


def top_k(scores: Tensor, k: int, left_out: Left | None = None, backend: Backend = "auto") -> tuple[Tensor, Tensor]:
    """Values and columns (int64) [B, k] of the k highest numbers of each row of ``scores`` [B, I], fp32 or float64.

    Columns in ``left_out`` count as −inf and come last. On the CPU a compiled scan reads every number once, without a
    copy. Elsewhere torch sorts, with the same result. ``scores`` are not changed.

    Raises :class:`NotFiniteError` if a score is not finite, and :class:`IndexError` for a column out of range.
    """
    k = min(k, scores.shape[1])
    if left_out is not None and len(left_out[1]) and not 0 <= left_out[1].min() <= left_out[1].max() < scores.shape[1]:
        raise IndexError(f"a column that is left out is not one of the {scores.shape[1]}")
    if k == 0:
        return scores.new_empty(len(scores), 0), torch.empty(len(scores), 0, dtype=torch.int64, device=scores.device)
    use_numba = backend == "numba" or (backend == "auto" and scores.device.type == "cpu" and has_numba())
    if use_numba:
        from graphmill.kernels.top_k import cpu as top_k_cpu

        none = np.zeros(len(scores) + 1, np.int64), np.zeros(0, np.int64)
        values, columns, finite = top_k_cpu.top_k(scores.detach().contiguous(), k, *(left_out or none))
    else:
        finite = not scores.numel() or all(torch.isfinite(bound).item() for bound in torch.aminmax(scores))
    if not finite:
        raise NotFiniteError("scores are not finite")
    if use_numba:
        return values, columns
    if left_out is not None:
        row = np.repeat(np.arange(len(scores)), np.diff(left_out[0]))
        scores = scores.clone()
        scores[torch.from_numpy(row).to(scores.device), torch.from_numpy(left_out[1]).to(scores.device)] = -torch.inf
    return _by_torch(scores, k)


def _by_torch(scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
    # torch.topk does not define the order of equal scores. Find those equal to the last one again, in order of columns.
    last = torch.topk(scores, k, dim=1).values[:, -1:]
    above = scores > last
    tied = scores == last
    room = k - above.sum(1, keepdim=True)
    chosen = above | (tied & (tied.cumsum(1) <= room))
    columns = chosen.nonzero()[:, 1].view(-1, k)  # ascending columns
    values = scores.gather(1, columns)
    order = torch.argsort(values, dim=1, descending=True, stable=True)
    return values.gather(1, order), columns.gather(1, order)
