"""Both attentions as the papers write them: a mask and every pair of positions; for TiSASRec [B, T, T, d] and all."""

from __future__ import annotations

import torch
from torch import Tensor


def causal_attention_reference(query: Tensor, key: Tensor, value: Tensor, real: Tensor, heads: int) -> Tensor:
    """[B, T, d] and ``real`` bool [B, T] → [B, T, d]; keys j ≤ i that are real are seen, and a row of padding itself."""
    _, length, width = query.shape
    allowed = torch.ones(length, length, dtype=torch.bool).tril() & real[:, None, :]
    allowed = allowed | torch.eye(length, dtype=torch.bool)
    outputs = []
    for head in range(heads):
        part = slice(head * width // heads, (head + 1) * width // heads)
        scores = query[..., part] @ key[..., part].transpose(1, 2) / (width // heads) ** 0.5
        attention = torch.softmax(scores.masked_fill(~allowed, float("-inf")), dim=-1)
        outputs.append(attention @ value[..., part])
    return torch.cat(outputs, dim=-1)


def time_attention_reference(
    query: Tensor, key: Tensor, value: Tensor, times: Tensor, table_key: Tensor, table_value: Tensor, heads: int
) -> Tensor:
    """One sequence at a time, without padding: [T, d] each, ``times`` int64 [T] → [T, d]."""
    length, width = query.shape
    span = len(table_key) - 1
    relation = (times[:, None] - times[None, :]).abs().clamp(max=span)
    pair_key, pair_value = table_key[relation], table_value[relation]
    outputs = []
    for head in range(heads):
        part = slice(head * width // heads, (head + 1) * width // heads)
        scores = (query[:, None, part] * (key[None, :, part] + pair_key[..., part])).sum(-1) / (width // heads) ** 0.5
        seen = torch.ones(length, length, dtype=torch.bool).tril()
        attention = torch.softmax(scores.masked_fill(~seen, float("-inf")), dim=-1)
        outputs.append((attention[..., None] * (value[None, :, part] + pair_value[..., part])).sum(1))
    return torch.cat(outputs, dim=-1)
