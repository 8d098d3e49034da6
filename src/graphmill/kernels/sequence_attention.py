"""Causal self-attention over sequences of different lengths, without a mask and with little padding.

Rows of all sequences stand one after the other in buckets: a bucket holds sequences of about one length, each padded at
its *end* to the longest. There the causal mask is also the key-padding mask: a row sees itself and earlier rows of its
sequence, and those are all real. Rows of padding see something and are never read. What a dense padded batch computes,
this computes (reference: ``sequence_attention_reference``).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from graphmill.kernels.dropout import dropout


@dataclass(frozen=True)
class Bucket:
    """``count`` sequences of ``length`` rows each (padding included), from row ``start`` on."""

    start: int
    count: int
    length: int

    @property
    def rows(self) -> slice:
        """Its rows in the matrix of all buckets."""
        return slice(self.start, self.start + self.count * self.length)


def causal_attention(
    query: Tensor, key: Tensor, value: Tensor, buckets: Sequence[Bucket], heads: int, p: float, training: bool
) -> Tensor:
    """softmax(Q Kᵀ / √(d / heads), causal) V per sequence and head.

    ``query``, ``key``, ``value``: [R, d] rows in buckets. ``p``: dropout on the attention weights. The softmax is at
    least fp32. Returns [R, d]. Memory: heads · Σ count · length² numbers a bucket.
    """
    outputs = []
    for bucket in buckets:
        q, k, v = (split_heads(x[bucket.rows], bucket, heads) for x in (query, key, value))
        outputs.append(join_heads(_attend(q, k, v, p, training), bucket, heads))
    return torch.cat(outputs) if len(outputs) > 1 else outputs[0]


def split_heads(rows: Tensor, bucket: Bucket, heads: int) -> Tensor:
    """[count · length, d] → [count · heads, length, d / heads]; a view for one head."""
    width = rows.shape[1] // heads
    if heads == 1:
        return rows.view(bucket.count, bucket.length, width)
    four = rows.view(bucket.count, bucket.length, heads, width).transpose(1, 2)
    return four.reshape(bucket.count * heads, bucket.length, width)


def join_heads(x: Tensor, bucket: Bucket, heads: int) -> Tensor:
    """The inverse of :func:`split_heads`."""
    if heads > 1:
        x = x.view(bucket.count, heads, bucket.length, -1).transpose(1, 2)
    return x.reshape(bucket.count * bucket.length, -1)


def causal_bias(length: int, like: Tensor) -> Tensor:
    """[length, length]: 0 where j ≤ i, else the lowest finite number of the dtype."""
    lowest = torch.finfo(like.dtype).min
    return torch.full((length, length), lowest, dtype=like.dtype, device=like.device).triu_(1)


def weights(scores: Tensor, p: float, training: bool, dtype: torch.dtype) -> Tensor:
    """Softmax of masked scores in at least fp32, with dropout, in ``dtype``."""
    wide = scores if scores.dtype == torch.float64 else scores.float()
    return dropout(torch.softmax(wide, dim=-1), p, training).to(dtype)


def _attend(q: Tensor, k: Tensor, v: Tensor, p: float, training: bool) -> Tensor:
    dropped = training and p > 0.0
    if q.device.type != "cpu" or not dropped:
        # Without dropout, and on devices with a fast generator, the fused kernel; it never stores the weights there.
        rate = p if training else 0.0
        return F.scaled_dot_product_attention(q[:, None], k[:, None], v[:, None], None, rate, True).squeeze(1)
    bias = causal_bias(q.shape[1], q)
    scores = torch.baddbmm(bias, q, k.transpose(1, 2), alpha=1.0 / math.sqrt(q.shape[-1]))
    return torch.bmm(weights(scores, p, training, v.dtype), v)
