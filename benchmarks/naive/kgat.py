"""KGAT as public code runs it: what graphmill's is timed against. Written from the equations; a stand-in, and named so.

Messages go through an uncoalesced COO product; the knowledge phase gathers a relation's matrix for every fact of the batch
(B × 64 × 64 numbers); negatives and facts are drawn one at a time in Python; evaluation sorts everything, user by user.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Kgat(nn.Module):
    """Bi-interaction layers on ``edges`` [3, E]: head, relation, tail; ``weight`` [E]."""

    def __init__(self, num_nodes: int, num_relations: int, dims: Sequence[int], edges: Tensor, weight: Tensor) -> None:
        super().__init__()
        self.nodes = nn.Embedding(num_nodes, dims[0])
        self.relations = nn.Embedding(num_relations, dims[0])
        self.matrices = nn.Parameter(torch.empty(num_relations, dims[0], dims[0]))
        for table in (self.nodes.weight, self.relations.weight, self.matrices):
            nn.init.xavier_uniform_(table)
        self.sums = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(dims))
        self.products = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(dims))
        self.dropout = nn.Dropout(0.1)
        self.edges = edges
        self.adjacency = torch.sparse_coo_tensor(edges[[0, 2]], weight, (num_nodes, num_nodes))

    def final(self) -> Tensor:
        """Every node's own vector and all layers' results."""
        state = self.nodes.weight
        out = [state]
        for to_sum, to_product in zip(self.sums, self.products, strict=True):
            around = torch.sparse.mm(self.adjacency, state)
            mixed = F.leaky_relu(to_sum(state + around)) + F.leaky_relu(to_product(state * around))
            state = self.dropout(mixed)
            out.append(F.normalize(state, dim=1))
        return torch.cat(out, 1)

    def cf_loss(self, users: Tensor, positives: Tensor, negatives: Tensor, penalty: float) -> Tensor:
        """BPR over final vectors."""
        final = self.final()
        u, p, n = final[users], final[positives], final[negatives]
        gap = (u * p).sum(1) - (u * n).sum(1)
        norm = sum(x.square().sum(1).mean() / 2 for x in (u, p, n))
        return -F.logsigmoid(gap).mean() + penalty * norm

    def kg_loss(self, h: Tensor, r: Tensor, t: Tensor, wrong: Tensor, penalty: float) -> Tensor:
        """TransR, one gathered matrix a fact."""
        matrix, move = self.matrices[r], self.relations(r)
        head, tail, false = (torch.bmm(self.nodes(x)[:, None], matrix)[:, 0] for x in (h, t, wrong))
        right, other = (head + move - tail).square().sum(1), (head + move - false).square().sum(1)
        norm = sum(x.square().sum(1).mean() / 2 for x in (head, move, tail, false))
        return -F.logsigmoid(other - right).mean() + penalty * norm

    @torch.no_grad()
    def refresh(self) -> None:
        """Attention, relation by relation, and the softmax of the sparse matrix."""
        logits = torch.empty(self.edges.shape[1])
        for r in range(len(self.matrices)):
            mine = (self.edges[1] == r).nonzero()[:, 0]
            h, t = (
                self.nodes(self.edges[0, mine]) @ self.matrices[r],
                self.nodes(self.edges[2, mine]) @ self.matrices[r],
            )
            logits[mine] = (t * torch.tanh(h + self.relations.weight[r])).sum(1)
        size = self.adjacency.shape
        self.adjacency = torch.sparse.softmax(torch.sparse_coo_tensor(self.edges[[0, 2]], logits, size), dim=1)


def draw_users(
    lists: dict[int, list[int]], seen: dict[int, set[int]], num_items: int, size: int, rng: random.Random
) -> tuple[list[int], list[int], list[int]]:
    """Users, an item of each, an item that is none of theirs: one at a time."""
    users = rng.sample(sorted(lists), size) if size <= len(lists) else rng.choices(sorted(lists), k=size)
    positives, negatives = [], []
    for user in users:
        positives.append(rng.choice(lists[user]))
        while True:
            item = rng.randrange(num_items)
            if item not in seen[user]:
                break
        negatives.append(item)
    return users, positives, negatives


def draw_facts(
    facts: dict[int, list[tuple[int, int]]], size: int, num_nodes: int, rng: random.Random
) -> tuple[list[int], list[int], list[int], list[int]]:
    """Heads, relation and tail of one of their facts, a tail that is no fact: one at a time."""
    known = sorted(facts)
    heads = rng.sample(known, size) if size <= len(known) else rng.choices(known, k=size)
    relations, tails, wrong = [], [], []
    for head in heads:
        relation, tail = rng.choice(facts[head])
        while True:
            other = rng.randrange(num_nodes)
            if (relation, other) not in facts[head]:
                break
        relations.append(relation)
        tails.append(tail)
        wrong.append(other)
    return heads, relations, tails, wrong


def evaluate(users: Tensor, items: Tensor, train: list[list[int]], test: list[list[int]], k: int) -> float:
    """Recall@k, one user at a time over its whole sorted list."""
    values = []
    for user, wanted in enumerate(test):
        if not wanted:
            continue
        scores = users[user] @ items.T
        scores[train[user]] = -np.inf
        top = torch.argsort(scores, descending=True)[:k].tolist()
        values.append(sum(1 for item in top if item in wanted) / len(wanted))
    return float(np.mean(values))
