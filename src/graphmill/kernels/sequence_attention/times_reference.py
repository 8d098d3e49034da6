"""TiSASRec's attention as the paper writes it: a table row for every pair of positions, [B, T, T, d] and all."""

from __future__ import annotations

import torch
from torch import Tensor


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
