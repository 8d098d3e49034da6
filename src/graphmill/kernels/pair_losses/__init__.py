"""BPR or a sampled softmax of a step's pairs and the norm of their vectors, with one pass each forward and backward.

As a dozen tensor operations over all rows, they would take a small model more time than its graph. With many negatives,
the looked-up rows of a step are many times larger than their tables. The compiled form reads each pair's rows from the
tables and adds to their gradients in place.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from graphmill.kernels.devices import suits_compiled
from graphmill.kernels.losses import bpr_losses, half_squares, row_dots
from graphmill.kernels.runtime.threads import has_numba
from graphmill.kernels.table_rows import check_numbers, gradient_of_table, table_rows


def pair_losses(
    users: Tensor,
    items: Tensor,
    user_rows: Tensor | None = None,
    item_rows: Tensor | None = None,
    *,
    together: bool = False,
) -> tuple[Tensor, Tensor]:
    """Two sums over pairs (0-d), of ``users`` u [B, d] and ``items`` i [B, 1 + k, d]: per user an item and k negatives.

    * mean_j −log σ(u·i₀ − u·i_j): Bayesian personalised ranking (Rendle et al. 2009), finite for every finite score; or,
      ``together``, −log(exp u·i₀ / Σ_{j ≥ 0} exp u·i_j), the sampled softmax (Wu et al. 2024), which is the same for k = 1;
    * ½ (‖u‖² + ‖i₀‖² + mean_j ‖i_j‖²).

    With ``user_rows`` int64 [B] and ``item_rows`` int64 [B, 1 + k], ``users`` and ``items`` are tables [U, d] and [I,
    d], from which the rows are taken.

    It computes in at least fp32. The compiled form (on a CPU with numba, in fp32 or float64) copies no row, and sums
    gradients in the order of the pairs at any number of threads. If a leaf already has a ``grad``, ``.backward()`` adds
    to it in place, and hooks do not see this gradient (:func:`graphmill.kernels.table_rows.table_rows`).

    Raises ValueError if shapes do not fit, and IndexError for a row number out of range.
    """
    if (user_rows is None) != (item_rows is None):
        raise ValueError("user_rows and item_rows go together: give both, or neither")
    if user_rows is None or item_rows is None:
        pairs = torch.arange(items.shape[0] * items.shape[1], device=items.device)
        return pair_losses(
            users, items.flatten(0, 1), pairs[: len(users)], pairs.view(items.shape[:2]), together=together
        )
    _check(users, items, user_rows, item_rows)
    if suits_compiled(users, items) and has_numba():
        return _PairLosses.apply(users, items, user_rows, item_rows, together)
    of_users, of_items = table_rows(users, user_rows), table_rows(items, item_rows)
    each = row_dots(of_users.repeat_interleave(of_items.shape[1], 0), of_items.flatten(0, 1)).view(len(of_users), -1)
    norm = half_squares(of_users, of_items[:, 0]) + half_squares(of_items[:, 1:]) / (of_items.shape[1] - 1)
    if together:
        return (torch.logsumexp(each, 1) - each[:, 0]).sum(), norm
    return bpr_losses(each[:, :1], each[:, 1:]).mean(1).sum(), norm


def _check(users: Tensor, items: Tensor, user_rows: Tensor, item_rows: Tensor) -> None:
    if users.dim() != 2 or items.dim() != 2 or users.shape[1] != items.shape[1]:
        raise ValueError(f"tables {list(users.shape)} and {list(items.shape)} are not [U, d] and [I, d]")
    if user_rows.dim() != 1 or item_rows.dim() != 2 or len(user_rows) != len(item_rows) or item_rows.shape[1] < 2:
        shapes = f"{list(user_rows.shape)} and {list(item_rows.shape)}"
        raise ValueError(f"user_rows and item_rows are [B] and [B, 1 + k] with at least one negative; not {shapes}")
    if user_rows.dtype != torch.int64 or item_rows.dtype != torch.int64:
        raise ValueError("user_rows and item_rows are numbers of rows, int64")


class _PairLosses(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, users: Tensor, items: Tensor, user_rows: Tensor, item_rows: Tensor, together: bool
    ) -> tuple[Tensor, Tensor]:
        from graphmill.kernels.pair_losses import cpu as pair_losses_cpu

        check_numbers(user_rows, users, "user")
        check_numbers(item_rows, items, "item")
        ctx.tables = users, items
        tables = users.contiguous(), items.contiguous()
        rows = user_rows.contiguous(), item_rows.contiguous()
        losses, norms, pulls = pair_losses_cpu.forward(*tables, *rows, together)
        ctx.save_for_backward(*tables, *rows, pulls)
        return losses.sum(), norms.sum()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        from graphmill.kernels.pair_losses import cpu as pair_losses_cpu

        tables = list(zip(ctx.tables, ctx.needs_input_grad[:2], strict=True))
        result = [gradient_of_table(t) if needed else None for t, needed in tables]
        into = [t.grad if each is None and needed else each for each, (t, needed) in zip(result, tables, strict=True)]
        pair_losses_cpu.backward(*ctx.saved_tensors, *(float(g) for g in gradients), *into)
        return *result, None, None, None
