"""SASRec and TiSASRec as their public PyTorch implementations compute them: left-padded, dense, a mask a pair.

Written from the equations. SASRec: torch's multi-head attention on [T, B, d] with a causal mask, post-norm, pointwise
feed-forward by convolutions, ``torch.nn.Dropout``. TiSASRec: time embeddings of every pair of positions, [B, T, T, d],
each with its own dropout, one head, residual on the normalised query.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn


class FeedForward(nn.Module):
    def __init__(self, dim: int, rate: float) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv1d(dim, dim, 1), nn.Conv1d(dim, dim, 1)
        self.drop1, self.drop2 = nn.Dropout(rate), nn.Dropout(rate)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.drop2(self.conv2(torch.relu(self.drop1(self.conv1(x.transpose(-1, -2))))))
        return y.transpose(-1, -2)


class SASRec(nn.Module):
    def __init__(self, items: int, length: int, dim: int, blocks: int, rate: float) -> None:
        super().__init__()
        self.items = nn.Embedding(items + 1, dim, padding_idx=0)
        self.positions = nn.Embedding(length + 1, dim, padding_idx=0)
        self.drop = nn.Dropout(rate)
        self.attention = nn.ModuleList(nn.MultiheadAttention(dim, 1, rate) for _ in range(blocks))
        self.forward_layers = nn.ModuleList(FeedForward(dim, rate) for _ in range(blocks))
        self.norms1 = nn.ModuleList(nn.LayerNorm(dim, 1e-8) for _ in range(blocks))
        self.norms2 = nn.ModuleList(nn.LayerNorm(dim, 1e-8) for _ in range(blocks))
        self.last = nn.LayerNorm(dim, 1e-8)
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.xavier_normal_(p)

    def states(self, seq: Tensor) -> Tensor:
        x = self.items(seq) * self.items.embedding_dim**0.5
        positions = torch.arange(1, seq.shape[1] + 1).expand(seq.shape) * (seq != 0)
        x = self.drop(x + self.positions(positions))
        mask = ~torch.tril(torch.ones(seq.shape[1], seq.shape[1], dtype=torch.bool))
        for attend, feed, one, two in zip(self.attention, self.forward_layers, self.norms1, self.norms2, strict=True):
            x = x.transpose(0, 1)
            x = one(x + attend(x, x, x, attn_mask=mask)[0]).transpose(0, 1)
            x = two(x + feed(x))
        out: Tensor = self.last(x)
        return out

    def forward(self, seq: Tensor, times: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
        return bce(self.states(seq), self.items, positive, negative)


class TimeAttention(nn.Module):
    def __init__(self, dim: int, rate: float) -> None:
        super().__init__()
        self.q, self.k, self.v = nn.Linear(dim, dim), nn.Linear(dim, dim), nn.Linear(dim, dim)
        self.drop = nn.Dropout(rate)

    def forward(
        self,
        queries: Tensor,
        keys: Tensor,
        pad: Tensor,
        mask: Tensor,
        t_k: Tensor,
        t_v: Tensor,
        p_k: Tensor,
        p_v: Tensor,
    ) -> Tensor:
        q, k, v = self.q(queries), self.k(keys), self.v(keys)
        # One head: the peers still cut and join every tensor by head, the pair tensors included.
        t_k, t_v = torch.cat(torch.split(t_k, q.shape[2], dim=3)), torch.cat(torch.split(t_v, q.shape[2], dim=3))
        scores = q.matmul(k.transpose(1, 2)) + q.matmul(p_k.transpose(1, 2))
        scores = scores + t_k.matmul(q.unsqueeze(-1)).squeeze(-1)
        scores = scores / q.shape[-1] ** 0.5
        low = torch.full_like(scores, -(2**32) + 1)
        scores = torch.where(pad.unsqueeze(-1).expand_as(scores), low, scores)
        scores = torch.where(mask.expand_as(scores), low, scores)
        weights = self.drop(torch.softmax(scores, dim=-1))
        out = weights.matmul(v) + weights.matmul(p_v)
        return out + weights.unsqueeze(2).matmul(t_v).reshape(out.shape)


class TiSASRec(nn.Module):
    def __init__(self, items: int, length: int, dim: int, blocks: int, rate: float, span: int) -> None:
        super().__init__()
        self.span = span
        self.items = nn.Embedding(items + 1, dim, padding_idx=0)
        self.p_k, self.p_v = nn.Embedding(length, dim), nn.Embedding(length, dim)
        self.t_k, self.t_v = nn.Embedding(span + 1, dim), nn.Embedding(span + 1, dim)
        self.drops = nn.ModuleList(nn.Dropout(rate) for _ in range(5))
        self.attention = nn.ModuleList(TimeAttention(dim, rate) for _ in range(blocks))
        self.forward_layers = nn.ModuleList(FeedForward(dim, rate) for _ in range(blocks))
        self.norms1 = nn.ModuleList(nn.LayerNorm(dim, 1e-8) for _ in range(blocks))
        self.norms2 = nn.ModuleList(nn.LayerNorm(dim, 1e-8) for _ in range(blocks))
        self.last = nn.LayerNorm(dim, 1e-8)
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.xavier_uniform_(p)

    def forward(self, seq: Tensor, times: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
        relation = (times[:, :, None] - times[:, None, :]).abs().clamp(max=self.span)
        pad = seq == 0
        x = self.drops[0](self.items(seq) * self.items.embedding_dim**0.5) * ~pad.unsqueeze(-1)
        positions = torch.arange(seq.shape[1]).expand(seq.shape)
        p_k, p_v = self.drops[1](self.p_k(positions)), self.drops[2](self.p_v(positions))
        t_k, t_v = self.drops[3](self.t_k(relation)), self.drops[4](self.t_v(relation))
        mask = ~torch.tril(torch.ones(seq.shape[1], seq.shape[1], dtype=torch.bool))
        for attend, feed, one, two in zip(self.attention, self.forward_layers, self.norms1, self.norms2, strict=True):
            query = one(x)
            z = two(query + attend(query, x, pad, mask, t_k, t_v, p_k, p_v))
            x = (feed(z) + z) * ~pad.unsqueeze(-1)
        return bce(self.last(x), self.items, positive, negative)


def bce(states: Tensor, items: nn.Embedding, positive: Tensor, negative: Tensor) -> Tensor:
    loss = nn.BCEWithLogitsLoss()
    right, wrong = (states * items(positive)).sum(-1), (states * items(negative)).sum(-1)
    at = torch.where(positive != 0)
    return loss(right[at], torch.ones_like(right[at])) + loss(wrong[at], torch.zeros_like(wrong[at]))


def rank_one(model: SASRec, history: np.ndarray, target: int, items: int, length: int, rng: np.random.Generator) -> int:
    """The public evaluation of one user: the target among 100 items drawn one by one, a forward pass of its own."""
    seq = np.zeros(length, np.int64)
    recent = history[-length:]
    seq[length - len(recent) :] = recent
    rated, candidates = set(history.tolist()) | {0}, [target]
    while len(candidates) < 101:
        item = int(rng.integers(1, items + 1))
        if item not in rated:
            candidates.append(item)
    with torch.no_grad():
        state = model.states(torch.from_numpy(seq)[None])[:, -1]
        scores = -(model.items(torch.tensor(candidates)) @ state[0])
    return int(scores.argsort().argsort()[0])
