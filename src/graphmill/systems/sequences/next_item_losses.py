"""Losses of next-item prediction, weight-tied: the score of an item is the product of the state and the item's vector.

All are sums over rows in at least fp32. The full softmax is in :mod:`graphmill.kernels.full_softmax`.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from graphmill.kernels.devices import wide
from graphmill.kernels.table_rows import table_rows


def logistic_sum(positive: Tensor, negative: Tensor, exists: Tensor | None = None) -> Tensor:
    """Σ_rows −log σ(s⁺) − mean_k log(1 − σ(s⁻)), SASRec's loss: ``positive`` [N], ``negative`` [N, k] → 0-d, at least fp32.

    ``exists`` bool [N, k]: False if a user has met every item, so that there is no negative.
    """
    wrong = F.softplus(wide(negative))
    if exists is not None:
        wrong = wrong * exists
    return F.softplus(-wide(positive)).sum() + wrong.sum() / negative.shape[1]


def item_logistic_sum(states: Tensor, table: Tensor, target: Tensor, negative: Tensor) -> Tensor:
    """:func:`logistic_sum` of the scores of ``states``: [N, d], [I, d], int64 [N] and [N, k] → 0-d.

    A ``negative`` of −1 is none.
    """
    items = torch.cat([target[:, None], negative], dim=1)
    vectors = wide(table_rows(table, items.clamp_min(0)))
    with torch.autocast(states.device.type, enabled=False):
        scores = torch.bmm(vectors, wide(states)[:, :, None]).squeeze(2)
    return logistic_sum(scores[:, 0], scores[:, 1:], negative >= 0)


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
