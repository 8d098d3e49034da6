"""TiSASRec's attention with relative times (Li et al. 2020), without a tensor of pairs of positions × width.

    e_ij = q_i · (k_j + R^K[r_ij]) / √d_h        o_i = Σ_j α_ij (v_j + R^V[r_ij])        r_ij = min(|t_i - t_j|, span)

R has only span + 1 different rows. So q_i · R^K[r_ij] is looked up in Q R^Kᵀ ([length, span + 1] per sequence). Σ_j
α_ij R^V[r_ij] is (Σ_{j: r_ij = s} α_ij) R^V, that is, the weights are first summed by interval. The caller adds
absolute positions to keys and values, which is equivalent: q·k + q·p = q·(k + p). The plain form is in
``tests/kernels/sequence_attention/reference.py``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from graphmill.kernels.sequence_attention import Bucket, by_buckets, causal_bias, weights


@dataclass(frozen=True)
class Intervals:
    """The times of a batch's rows, int64 [R], in ``buckets``. Differences above ``span`` count as ``span``."""

    times: Tensor
    buckets: Sequence[Bucket]
    span: int

    @cached_property
    def relations(self) -> list[Tensor]:
        """min(|t_i - t_j|, span) of each bucket, int64 [count, length, length]. It is computed once."""
        times = (self.times[bucket.rows].view(bucket.count, bucket.length) for bucket in self.buckets)
        return [(t[:, :, None] - t[:, None, :]).abs_().clamp_(max=self.span) for t in times]


def time_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    intervals: Intervals,
    table_key: Tensor,
    table_value: Tensor,
    heads: int,
    p: float,
    training: bool,
) -> Tensor:
    """Attention of every sequence; rows in buckets as in :mod:`graphmill.kernels.sequence_attention`.

    ``query``, ``key``, ``value`` [R, d] (positions already in key and value); ``table_key``, ``table_value`` [span + 1, d].
    Returns [R, d]. Memory: heads · Σ count · length · (length + span + 1).
    """
    buckets = intervals.buckets
    relations = intervals.relations if heads == 1 else [r.repeat_interleave(heads, 0) for r in intervals.relations]
    # [span + 1, d] → [heads, span + 1, d / heads]
    tables = [table.view(len(table), heads, -1).transpose(0, 1) for table in (table_key, table_value)]
    others = [(r, *tables, p if training else 0.0) for r in relations]
    return by_buckets(_attend, (query, key, value), buckets, heads, others)


def _attend(q: Tensor, k: Tensor, v: Tensor, relation: Tensor, r_key: Tensor, r_value: Tensor, p: float) -> Tensor:
    scale = 1.0 / math.sqrt(q.shape[-1])
    scores = torch.baddbmm(causal_bias(q.shape[1], q), q, k.transpose(1, 2), alpha=scale)
    scores = scores + _per_head(q * scale, r_key.transpose(1, 2)).gather(-1, relation)
    attention = weights(scores, p, p > 0.0, v.dtype)
    collected = torch.zeros(*q.shape[:2], r_value.shape[1], dtype=v.dtype, device=v.device)
    collected = collected.scatter_add(-1, relation, attention)
    return torch.bmm(attention, v) + _per_head(collected, r_value)


def _per_head(x: Tensor, tables: Tensor) -> Tensor:
    """[count · heads, length, a] times [heads, a, b] by head → [count · heads, length, b], with one product per head."""
    if len(tables) == 1:
        return (x.flatten(0, 1) @ tables[0]).unflatten(0, x.shape[:2]) if x.is_contiguous() else x @ tables[0]
    return (x.unflatten(0, (-1, len(tables))) @ tables).flatten(0, 1)
