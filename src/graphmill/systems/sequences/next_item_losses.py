"""Losses of next-item prediction, weight-tied: the score of an item is the product of the state and the item's vector.

All are sums over rows in at least fp32. The logistic losses process one block of rows at a time: no whole [rows,
negatives, d] table exists. The full softmax is in :mod:`graphmill.kernels.full_softmax`.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from graphmill.kernels.devices import part_bytes, wide
from graphmill.kernels.full_softmax import BLOCK_BYTES
from graphmill.kernels.table_rows import add_rows_, gradient_of_table, table_rows

Weights = tuple[float, float]
"""The weights of a positive and of each of its negatives in a logistic loss."""


def bce_weights(negatives: int) -> Weights:
    """−log σ(s⁺) − mean_k log(1 − σ(s⁻)): SASRec's loss for one negative."""
    return 1.0, 1.0 / negatives


def gbce_weights(negatives: int, items: int, calibration: float) -> Weights:
    """Generalised BCE (gSASRec, arXiv 2308.07192): (−β log σ(s⁺) − Σ_k log(1 − σ(s⁻))) / (k + 1).

    α = k / (I − 1) is the sampling rate and β = α (t (1 − 1/α) + 1/α); t = ``calibration`` in 0 .. 1: 0 is plain BCE
    (β = 1), 1 undoes the bias of sampling (β = α).
    """
    rate = negatives / max(items - 1, 1)
    beta = rate * (calibration * (1.0 - 1.0 / rate) + 1.0 / rate)
    return beta / (negatives + 1), 1.0 / (negatives + 1)


def logistic_sum(positive: Tensor, negative: Tensor, weights: Weights, exists: Tensor | None = None) -> Tensor:
    """Σ_rows −w⁺ log σ(s⁺) − w⁻ Σ_k log(1 − σ(s⁻)): ``positive`` [N], ``negative`` [N, k] → 0-d, at least fp32.

    ``exists`` bool [N, k]: False if a user has met every item, so that there is no negative.
    """
    wrong = F.softplus(wide(negative))
    if exists is not None:
        wrong = wrong * exists
    return weights[0] * F.softplus(-wide(positive)).sum() + weights[1] * wrong.sum()


def item_logistic_sum(
    states: Tensor, rows: Tensor, table: Tensor, target: Tensor, negative: Tensor, weights: Weights
) -> Tensor:
    """:func:`logistic_sum` of the scores of states at ``rows``: [R, d], int64 [N], [I, d], int64 [N] and [N, k] → 0-d.

    A ``negative`` of −1 is none. No row of ``rows`` may come twice.
    """
    return _ItemLogistic.apply(states, rows, table, torch.cat([target[:, None], negative], dim=1), weights)


class _ItemLogistic(torch.autograd.Function):
    """Looks up the vectors of [rows, 1 + k] items for one block of rows at a time, forward and backward, and does not
    store them."""

    @staticmethod
    def forward(ctx: Any, states: Tensor, rows: Tensor, table: Tensor, items: Tensor, weights: Weights) -> Tensor:
        slopes, total = [], torch.zeros((), dtype=wide(states[:0]).dtype, device=states.device)
        with torch.autocast(states.device.type, enabled=False):
            for part in _blocks(items, table):
                state, vectors, exists = _looked_up(states, rows[part], table, items[part])
                scores = torch.bmm(vectors, state[:, :, None]).squeeze(2)
                with torch.enable_grad():
                    scores.requires_grad_()
                    loss = logistic_sum(scores[:, 0], scores[:, 1:], weights, exists[:, 1:])
                total += loss.detach()
                slopes.append(torch.autograd.grad(loss, scores)[0])
        ctx.save_for_backward(states, rows, items, torch.cat(slopes) if slopes else total.new_zeros(items.shape))
        ctx.table = table
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        states, rows, items, slopes = ctx.saved_tensors
        table, slopes = ctx.table, slopes * gradients[0]
        need_states, _, need_table, *_ = ctx.needs_input_grad
        into_states = torch.zeros_like(states) if need_states else None
        into_table = gradient_of_table(table) if need_table else None
        for part in _blocks(items, table):
            state, vectors, _ = _looked_up(states, rows[part], table, items[part])
            if into_states is not None:
                into_states[rows[part]] = torch.bmm(slopes[part, None], vectors).squeeze(1).to(states.dtype)
            if need_table:
                added = torch.mul(slopes[part, :, None], state[:, None], out=vectors).flatten(0, 1)
                add_rows_(table.grad if into_table is None else into_table, items[part].clamp_min(0).flatten(), added)
        return into_states, None, into_table, None, None


def _blocks(items: Tensor, table: Tensor) -> list[slice]:
    size = max(part_bytes(table.device, BLOCK_BYTES) // (4 * items.shape[1] * table.shape[1]), 1)
    return [slice(start, start + size) for start in range(0, len(items), size)]


def _looked_up(states: Tensor, rows: Tensor, table: Tensor, items: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """States [n, d] and the items' vectors [n, 1 + k, d], at least fp32; whether each item exists."""
    return wide(states[rows]), wide(F.embedding(items.clamp_min(0), table.detach())), items >= 0


def sampled_softmax_sum(
    states: Tensor, table: Tensor, target: Tensor, sampled: Tensor, log_expected: Tensor, target_log_expected: Tensor
) -> Tensor:
    """Σ_rows −log softmax over the target and items sampled for all rows, corrected by log of the expected count.

    ``sampled`` int64 [M]; ``log_expected`` [M] and ``target_log_expected`` [N]: log of the expected number of times
    that the sampler draws the item in M draws (Bengio and Senécal 2008). A sampled item that is a row's target is left
    out of this row.
    """
    positive = (wide(states) * wide(table_rows(table, target))).sum(1) - wide(target_log_expected)
    scores = wide(states @ table_rows(table, sampled).T.to(states.dtype)) - wide(log_expected)
    scores = scores.masked_fill(target[:, None] == sampled[None, :], -torch.inf)
    total = torch.logsumexp(torch.cat([positive[:, None], scores], dim=1), dim=1)
    return (total - positive).sum()


def expected_log_counts(probability: Tensor, draws: int) -> Tensor:
    """log(draws · q), elementwise: the correction in :func:`sampled_softmax_sum`."""
    return torch.log(probability) + math.log(draws)
