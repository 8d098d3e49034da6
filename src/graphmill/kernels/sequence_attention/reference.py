"""Causal attention as it is written in the paper: one left-padded batch, one mask, every pair of positions."""

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
