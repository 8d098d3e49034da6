"""A step of SASRec and of KGAT as their public PyTorch code takes it: the rivals of the proof's phase ``plain``.

SASRec after Kang and McAuley as ``pmixer/SASRec.pytorch`` writes it: dense rows of ``length`` items, ``MultiheadAttention``
under a causal mask, BCE with one negative. KGAT after Wang et al. as ``LunaBlue/KGAT-pytorch`` writes it: one sparse matrix
of attention, products of all nodes in each layer, a W_r for each fact of the batch. Adam as PyTorch makes it by default.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Sasrec(nn.Module):
    """Item and position tables, blocks of attention and feed-forward; item 0 is padding."""

    def __init__(self, items: int, length: int, width: int, blocks: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.items = nn.Embedding(items + 1, width, padding_idx=0)
        self.positions = nn.Embedding(length, width)
        self.dropout = nn.Dropout(dropout)
        self.blocks = nn.ModuleList(_Block(width, heads, dropout) for _ in range(blocks))
        self.norm = nn.LayerNorm(width, eps=1e-8)

    def forward(self, rows: np.ndarray, positives: np.ndarray, negatives: np.ndarray) -> tuple[Tensor, Tensor]:
        """Scores of the true and the drawn next item, [B, length] each, from int64 [B, length] on the host."""
        device = self.positions.weight.device
        x = self.items(torch.LongTensor(rows).to(device)) * self.items.embedding_dim**0.5
        at = np.tile(np.arange(rows.shape[1]), [rows.shape[0], 1])
        x = self.dropout(x + self.positions(torch.LongTensor(at).to(device)))
        padding = torch.BoolTensor(rows == 0).to(device)
        x = x * ~padding.unsqueeze(-1)
        later = ~torch.tril(torch.ones((x.shape[1], x.shape[1]), dtype=torch.bool, device=device))
        for block in self.blocks:
            x = block(x, later) * ~padding.unsqueeze(-1)
        x = self.norm(x)
        return tuple((x * self.items(torch.LongTensor(n).to(device))).sum(-1) for n in (positives, negatives))


class _Block(nn.Module):
    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(width, eps=1e-8), nn.LayerNorm(width, eps=1e-8)
        self.attention = nn.MultiheadAttention(width, heads, dropout)
        self.one, self.two = nn.Conv1d(width, width, 1), nn.Conv1d(width, width, 1)
        self.drop_one, self.drop_two = nn.Dropout(dropout), nn.Dropout(dropout)

    def forward(self, x: Tensor, later: Tensor) -> Tensor:
        x = x.transpose(0, 1)
        query = self.first(x)
        x = (query + self.attention(query, x, x, attn_mask=later)[0]).transpose(0, 1)
        x = self.second(x)
        hidden = self.drop_one(self.one(x.transpose(-1, -2))).relu()
        return self.drop_two(self.two(hidden)).transpose(-1, -2) + x


def sasrec_step(model: Sasrec) -> Callable[[np.ndarray, np.ndarray, np.ndarray], None]:
    """A training step from rows of items, their next items and negatives, int64 [B, length], 0 = none."""
    optimizer = torch.optim.Adam(model.parameters(), lr=0.001, betas=(0.9, 0.98))
    entropy = nn.BCEWithLogitsLoss()

    def step(rows: np.ndarray, positives: np.ndarray, negatives: np.ndarray) -> None:
        yes, no = model(rows, positives, negatives)
        ones, zeros = torch.ones(yes.shape, device=yes.device), torch.zeros(no.shape, device=no.device)
        optimizer.zero_grad()
        at = np.where(positives != 0)
        (entropy(yes[at], ones[at]) + entropy(no[at], zeros[at])).backward()
        optimizer.step()

    return step


class Kgat(nn.Module):
    """Tables of nodes and relations, a W_r each, layers of bi-interaction; ``matrix``: sparse attention [N, N]."""

    def __init__(self, nodes: int, relations: int, widths: list[int], matrix: Tensor, dropout: float) -> None:
        super().__init__()
        self.nodes, self.relations = nn.Embedding(nodes, widths[0]), nn.Embedding(relations, widths[0])
        self.projections = nn.Parameter(torch.empty(relations, widths[0], widths[0]))
        for weight in (self.nodes.weight, self.relations.weight, self.projections):
            nn.init.xavier_uniform_(weight)
        pairs = list(pairwise(widths))
        self.sums = nn.ModuleList(nn.Linear(a, b) for a, b in pairs)
        self.products = nn.ModuleList(nn.Linear(a, b) for a, b in pairs)
        self.dropout = nn.Dropout(dropout)
        self.matrix = matrix

    def vectors(self) -> Tensor:
        x = self.nodes.weight
        result = [x]
        for sums, products in zip(self.sums, self.products, strict=True):
            side = torch.matmul(self.matrix, x)
            x = self.dropout(F.leaky_relu(sums(x + side)) + F.leaky_relu(products(x * side)))
            result.append(F.normalize(x, p=2, dim=1))
        return torch.cat(result, dim=1)

    def pairs(self, users: Tensor, positives: Tensor, negatives: Tensor) -> Tensor:
        """BPR and the norm of the vectors."""
        every = self.vectors()
        u, i, j = every[users], every[positives], every[negatives]
        loss = -F.logsigmoid((u * i).sum(1) - (u * j).sum(1)).mean()
        return loss + 1e-5 * _norm(u, i, j)

    def facts(self, heads: Tensor, relations: Tensor, tails: Tensor, wrong: Tensor) -> Tensor:
        """TransR's loss and the norm of what it projects."""
        r, weights = self.relations(relations), self.projections[relations]
        h, t, w = (torch.bmm(self.nodes(n).unsqueeze(1), weights).squeeze(1) for n in (heads, tails, wrong))
        right, false = ((h + r - x).pow(2).sum(1) for x in (t, w))
        return -F.logsigmoid(false - right).mean() + 1e-5 * _norm(h, r, t, w)


def _norm(*rows: Tensor) -> Tensor:
    return sum(x.pow(2).sum(1).mean() / 2 for x in rows)  # type: ignore[return-value]


def kgat_step(model: Kgat) -> Callable[..., None]:
    """A training step of the phase whose arrays it is given: three of pairs or four of facts, int64 on the host."""
    adams = {n: torch.optim.Adam(model.parameters(), lr=1e-4) for n in (3, 4)}
    device = model.projections.device

    def step(*arrays: np.ndarray) -> None:
        of = [torch.LongTensor(a).to(device) for a in arrays]
        loss = (model.pairs if len(of) == 3 else model.facts)(*of)
        loss.backward()
        adams[len(of)].step()
        adams[len(of)].zero_grad()

    return step
