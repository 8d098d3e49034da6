"""TransR's pairwise loss of facts and the norm of their vectors, with one pass over the rows each forward and backward.

As two dozen tensor operations, they would take longer than the projections before them.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from graphmill.kernels.devices import suits_compiled
from graphmill.kernels.losses import bpr_losses, half_squares
from graphmill.kernels.runtime.threads import has_numba


def fact_losses(rows: Tensor, translations: Tensor, relations: Tensor) -> tuple[Tensor, Tensor]:
    """``rows`` [B, 3, k]: head h, tail t and false tail f of each fact, projected by its relation; ``translations`` [R, k];
    ``relations`` int64 [B]: rows e of those. Two sums over the facts (0-d):

    * softplus(‖h + e − t‖² − ‖h + e − f‖²), which is −log σ of the difference of squared distances (KGAT, eq. 2; Lin et
      al. 2015);
    * ½ (‖h‖² + ‖e‖² + ‖t‖² + ‖f‖²).

    It computes in at least fp32. Raises IndexError if a relation has no row in ``translations``, like torch, and
    ValueError or RuntimeError if shapes do not fit.
    """
    if suits_compiled(rows, translations) and has_numba():
        return _FactLosses.apply(rows, translations, relations)
    head, tail, wrong = rows.unbind(1)
    translation = translations.index_select(0, relations)
    moved = head + translation
    right, false = ((moved - end).square().sum(1) for end in (tail, wrong))
    return bpr_losses(-right, -false).sum(), half_squares(rows, translation)


class _FactLosses(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, translations: Tensor, relations: Tensor) -> tuple[Tensor, Tensor]:
        from graphmill.kernels.fact_losses import cpu as fact_losses_cpu

        # Compiled code does not check indices.
        if len(relations) != len(rows) or rows.shape[1] != 3 or rows.shape[2] != translations.shape[1]:
            shapes = ", ".join(str(list(t.shape)) for t in (rows, translations, relations))
            raise ValueError(f"rows [B, 3, k], translations [R, k] and relations [B]; not {shapes}")
        if len(relations) and not 0 <= int(relations.min()) <= int(relations.max()) < len(translations):
            raise IndexError(f"relations are numbers from 0 to {len(translations) - 1}")
        rows, translations = rows.contiguous(), translations.contiguous()
        losses, norms, pulls = fact_losses_cpu.forward(rows, translations, relations)
        ctx.save_for_backward(rows, translations, relations, pulls)
        return losses.sum(), norms.sum()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None]:
        from graphmill.kernels.fact_losses import cpu as fact_losses_cpu

        return *fact_losses_cpu.backward(*ctx.saved_tensors, *(float(g) for g in gradients)), None
