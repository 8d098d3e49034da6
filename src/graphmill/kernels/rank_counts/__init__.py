"""Counts the scores of a row above its target's score, and those equal to it, in one pass; ranks follow from them.

torch would write a matrix as large as the scores for each comparison, and then sum it.
"""

from __future__ import annotations

import torch
from torch import Tensor

from graphmill.kernels.devices import suits_compiled
from graphmill.kernels.runtime.threads import has_numba


def rank_counts(scores: Tensor, target: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """``scores`` [Q, C], ``target`` [Q] → int64 [Q] each: scores above it, equal to it, and not finite."""
    if suits_compiled(scores, target) and has_numba() and scores.is_contiguous():
        from graphmill.kernels.rank_counts import cpu as rank_counts_cpu

        return rank_counts_cpu.rank_counts(scores, target.contiguous())
    # Compare into floating point: on a CPU this counts ten times faster than booleans, and is exact up to 2²⁴ columns.
    kind = torch.float64 if scores.dtype == torch.float64 else torch.float32
    flags = torch.empty(scores.shape, dtype=kind, device=scores.device)
    above = torch.gt(scores, target[:, None], out=flags).sum(1).long()
    tied = torch.eq(scores, target[:, None], out=flags).sum(1).long()
    return above, tied, (~torch.isfinite(scores)).sum(1)
