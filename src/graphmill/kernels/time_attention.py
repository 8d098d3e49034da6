"""TiSASRec's attention with relative times (Li et al. 2020), without any tensor over pairs of positions and width.

    e_ij = q_i · (k_j + R^K[r_ij]) / √d_h        o_i = Σ_j α_ij (v_j + R^V[r_ij])        r_ij = min(|t_i - t_j|, span)

There are only span + 1 different rows of R. So q_i · R^K[r_ij] is looked up in Q R^Kᵀ ([length, span + 1] a sequence),
and Σ_j α_ij R^V[r_ij] is (Σ_{j: r_ij = s} α_ij) R^V: the weights are added up by interval first. Absolute positions are
added to keys and values by the caller, which is the same: q·k + q·p = q·(k + p). The plain form is in
``time_attention_reference``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from graphmill.kernels.sequence_attention import Bucket, causal_bias, join_heads, split_heads, weights


def time_relations(times: Tensor, buckets: Sequence[Bucket], span: int) -> list[Tensor]:
    """min(|t_i - t_j|, span) of each bucket: int64 [count, length, length] from ``times`` int64 [R]."""
    relations = []
    for bucket in buckets:
        t = times[bucket.rows].view(bucket.count, bucket.length)
        relations.append((t[:, :, None] - t[:, None, :]).abs_().clamp_(max=span))
    return relations


def time_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    relations: Sequence[Tensor],
    table_key: Tensor,
    table_value: Tensor,
    buckets: Sequence[Bucket],
    heads: int,
    p: float,
    training: bool,
) -> Tensor:
    """Attention of every sequence; rows in buckets as in :mod:`graphmill.kernels.sequence_attention`.

    ``query``, ``key``, ``value`` [R, d] (positions already in key and value); ``relations`` from :func:`time_relations`;
    ``table_key``, ``table_value`` [span + 1, d]. Returns [R, d]. Memory: heads · Σ count · length · (length + span + 1).
    """
    outputs = []
    for bucket, relation in zip(buckets, relations, strict=True):
        q, k, v = (split_heads(x[bucket.rows], bucket, heads) for x in (query, key, value))
        if heads > 1:
            relation = relation.repeat_interleave(heads, 0)
        out = _attend(q, k, v, relation, _heads_of(table_key, heads), _heads_of(table_value, heads), p, training)
        outputs.append(join_heads(out, bucket, heads))
    return torch.cat(outputs) if len(outputs) > 1 else outputs[0]


def _heads_of(table: Tensor, heads: int) -> Tensor:
    """[span + 1, d] → [heads, span + 1, d / heads]."""
    return table.view(table.shape[0], heads, -1).transpose(0, 1)


def _attend(
    q: Tensor, k: Tensor, v: Tensor, relation: Tensor, r_key: Tensor, r_value: Tensor, p: float, training: bool
) -> Tensor:
    scale = 1.0 / math.sqrt(q.shape[-1])
    by_interval = _per_head(q * scale, r_key.transpose(1, 2))
    scores = torch.baddbmm(causal_bias(q.shape[1], q), q, k.transpose(1, 2), alpha=scale)
    scores = scores + by_interval.gather(-1, relation)
    attention = weights(scores, p, training, v.dtype)
    collected = torch.zeros(*q.shape[:2], r_value.shape[1], dtype=v.dtype, device=v.device)
    collected = collected.scatter_add(-1, relation, attention)
    return torch.bmm(attention, v) + _per_head(collected, r_value)


def _per_head(x: Tensor, tables: Tensor) -> Tensor:
    """[count · heads, length, a] times [heads, a, b] by head → [count · heads, length, b]: one product a head."""
    heads = tables.shape[0]
    if heads == 1:
        return x @ tables[0]
    four = x.view(-1, heads, *x.shape[1:])
    return (four @ tables).view(x.shape[0], x.shape[1], -1)
