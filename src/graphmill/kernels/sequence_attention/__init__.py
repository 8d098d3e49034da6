"""Causal self-attention over sequences of different lengths, without a mask and with little padding.

Sequences are sorted into buckets of similar length, and padded at the *end* to the longest of their bucket. The rows of
all buckets are concatenated. With padding at the end, the causal mask is also the key-padding mask: a row attends to
itself and earlier rows of its sequence, which are never padding. The results of padding rows are never read. The result
is the same as that of a dense padded batch (reference: ``tests/kernels/sequence_attention/reference.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from graphmill.kernels.devices import wide


@dataclass(frozen=True)
class Bucket:
    """``count`` sequences of ``length`` rows each (including padding), from row ``start`` on."""

    start: int
    count: int
    length: int

    @property
    def rows(self) -> slice:
        """The bucket's rows in the matrix of all buckets."""
        return slice(self.start, self.start + self.count * self.length)


def causal_attention(
    query: Tensor, key: Tensor, value: Tensor, buckets: Sequence[Bucket], heads: int, p: float, training: bool
) -> Tensor:
    """softmax(Q Kᵀ / √(d / heads), causal) V per sequence and head.

    ``query``, ``key``, ``value``: [R, d] rows in buckets. ``p``: dropout on the attention weights. The softmax is at
    least fp32. Returns [R, d]. Memory: heads · count · length² numbers for each bucket.
    """
    others = [(p, training)] * len(buckets)
    return by_buckets(_attend, (query, key, value), buckets, heads, others)


def by_buckets(
    attend: Callable[..., Tensor], rows: tuple[Tensor, Tensor, Tensor], buckets: Sequence[Bucket], heads: int,
    others: Sequence[tuple[Any, ...]],
) -> Tensor:  # fmt: skip
    """[R, d]: ``attend(q, k, v, *other)`` for each bucket, with its rows by head [count · heads, length, d / heads].

    ``others``: more arguments for each bucket. The gradient of each of the ``rows`` is one tensor for all buckets.
    """
    sizes, outputs = [bucket.count * bucket.length for bucket in buckets], []
    parts = zip(*(torch.split(x, sizes) for x in rows), strict=True)
    for qkv, bucket, other in zip(parts, buckets, others, strict=True):
        out = attend(*(split_heads(x, bucket, heads) for x in qkv), *other)
        outputs.append(join_heads(out, bucket, heads))
    return torch.cat(outputs) if len(outputs) > 1 else outputs[0]


def split_heads(rows: Tensor, bucket: Bucket, heads: int) -> Tensor:
    """[count · length, d] → [count · heads, length, d / heads]; a view for one head."""
    three = rows.unflatten(0, (bucket.count, bucket.length))
    if heads == 1:
        return three
    return three.unflatten(2, (heads, -1)).transpose(1, 2).reshape(bucket.count * heads, bucket.length, -1)


def join_heads(x: Tensor, bucket: Bucket, heads: int) -> Tensor:
    """The inverse of :func:`split_heads`."""
    if heads > 1:
        x = x.unflatten(0, (bucket.count, heads)).transpose(1, 2)
    return x.reshape(bucket.count * bucket.length, -1)


def causal_bias(length: int, like: Tensor) -> Tensor:
    """[length, length]: 0 for j ≤ i, else the lowest finite number of the dtype."""
    lowest = torch.finfo(like.dtype).min
    return torch.full((length, length), lowest, dtype=like.dtype, device=like.device).triu_(1)


def weights(scores: Tensor, p: float, training: bool, dtype: torch.dtype) -> Tensor:
    """Softmax of masked scores in at least fp32, with dropout, in ``dtype``."""
    return F.dropout(torch.softmax(wide(scores), dim=-1), p, training).to(dtype)


def _attend(q: Tensor, k: Tensor, v: Tensor, p: float, training: bool) -> Tensor:
    rate = p if training else 0.0
    return F.scaled_dot_product_attention(q[:, None], k[:, None], v[:, None], None, rate, True).squeeze(1)
