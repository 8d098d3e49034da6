"""BPR or a sampled softmax of a step's pairs and the norm of their vectors, in one pass over the vectors each way.

As a dozen tensor operations, each over all rows, these cost a small model more than its graph.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from graphmill.kernels.losses import bpr_losses, half_squares, row_dots
from graphmill.kernels.threads import has_numba


def pair_losses(users: Tensor, items: Tensor, *, together: bool = False) -> tuple[Tensor, Tensor]:
    """``users`` [B, d]; ``items`` [B, 1 + k, d]: the item of each and k that it has not. Two sums over the pairs (0-d):

    * mean_j −log σ(u·i₀ − u·i_j): Bayesian personalised ranking (Rendle et al. 2009), finite for every finite score; or,
      ``together``, −log(exp u·i₀ / Σ_{j ≥ 0} exp u·i_j), the sampled softmax (Wu et al. 2024), which is the same for k = 1;
    * ½ (‖u‖² + ‖i₀‖² + mean_j ‖i_j‖²).

    At least fp32.
    """
    if _compiled_serves(users, items):
        found: tuple[Tensor, Tensor] = _PairLosses.apply(users, items, together)
        return found
    each = row_dots(users.repeat_interleave(items.shape[1], 0), items.flatten(0, 1)).view(len(users), -1)
    norm = half_squares(users, items[:, 0]) + half_squares(items[:, 1:]) / (items.shape[1] - 1)
    if together:
        return (torch.logsumexp(each, 1) - each[:, 0]).sum(), norm
    return bpr_losses(each[:, :1], each[:, 1:]).mean(1).sum(), norm


def _compiled_serves(*tables: Tensor) -> bool:
    return (
        all(t.device.type == "cpu" and t.dtype in (torch.float32, torch.float64) for t in tables)
        and has_numba()
        and not torch.compiler.is_compiling()
    )


class _PairLosses(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, users: Tensor, items: Tensor, together: bool) -> tuple[Tensor, Tensor]:
        from graphmill.kernels import pair_losses_numba

        users, items = users.contiguous(), items.contiguous()
        losses, norms, pulls = pair_losses_numba.forward(users, items, together)
        ctx.save_for_backward(users, items, pulls)
        return losses.sum(), norms.sum()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None]:
        from graphmill.kernels import pair_losses_numba

        return *pair_losses_numba.backward(*ctx.saved_tensors, *(float(g) for g in gradients)), None
