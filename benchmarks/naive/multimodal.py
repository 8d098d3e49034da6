"""MMGCN and DRAGON as their public PyTorch implementations compute them: messages of every edge, one forward a step.

Written from the equations. Both propagate by gathering a row per edge and adding it up at its target (what a message
passing library does on edge lists), count degrees in every call, draw negatives one at a time in Python, and write the
loss in the textbook form. MMGCN's ID embeddings and preferences are tensors that no optimizer sees and that autograd
follows all the same; DRAGON gathers 40 neighbours for every user in every step.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F


def gather_add(x: Tensor, edges: Tensor, weight: Tensor | None, mean: bool) -> Tensor:
    """One message passing: ``edges`` int64 [2, E] from row 0 to row 1."""
    messages = x.index_select(0, edges[0])
    if weight is not None:
        messages = messages * weight[:, None]
    out = torch.zeros_like(x).scatter_add_(0, edges[1][:, None].expand_as(messages), messages)
    if mean:
        degree = torch.zeros(len(x)).scatter_add_(0, edges[1], torch.ones(edges.shape[1]))
        out = out / degree.clamp(min=1)[:, None]
    return out


class TowerOfMMGCN(nn.Module):
    """One modality; ``latent`` 0: the features enter as they are."""

    def __init__(self, users: int, features: Tensor, dim: int, latent: int, layers: int) -> None:
        super().__init__()
        self.features = features
        width = latent or features.shape[1]
        self.preference = nn.init.xavier_normal_(torch.rand(users, width, requires_grad=True))
        self.mapped = nn.Linear(features.shape[1], latent) if latent else None
        widths = [width] + [dim] * (layers - 1)
        self.message = nn.ParameterList(nn.init.xavier_normal_(torch.empty(w, w)) for w in widths)
        self.own = nn.ModuleList(nn.Linear(w, dim) for w in widths)
        self.joint = nn.ModuleList(nn.Linear(w + dim, dim) for w in widths)

    def forward(self, edges: Tensor, identity: Tensor) -> Tensor:
        features = self.mapped(self.features) if self.mapped is not None else self.features
        x = F.normalize(torch.cat((self.preference, features), dim=0))
        for message, own, joint in zip(self.message, self.own, self.joint, strict=True):
            h = F.leaky_relu(gather_add(x @ message, edges, None, True))
            kept = F.leaky_relu(own(x)) + identity
            x = F.leaky_relu(joint(torch.cat((h, kept), dim=1)))
        return x


class MMGCN(nn.Module):
    def __init__(
        self, users: int, items: int, pairs: Tensor, features: Sequence[Tensor], latent: Sequence[int], dim: int = 64
    ) -> None:
        super().__init__()
        self.users = users
        self.edges = both_ways(pairs, users)
        self.identity = nn.init.xavier_normal_(torch.rand(users + items, dim, requires_grad=True))
        self.towers = nn.ModuleList(TowerOfMMGCN(users, f, dim, w, 3) for f, w in zip(features, latent, strict=True))

    def forward(self) -> Tensor:
        total = self.towers[0](self.edges, self.identity)
        for tower in self.towers[1:]:
            total = total + tower(self.edges, self.identity)
        return total / len(self.towers)

    def loss(self, users: Tensor, positives: Tensor, negatives: Tensor, regularisation: float) -> Tensor:
        twice = users.repeat_interleave(2)
        items = torch.stack((positives, negatives)).t().reshape(-1) + self.users
        out = self.forward()
        score = (out[twice] * out[items]).sum(dim=1).view(-1, 2)
        bpr = -torch.mean(torch.log(torch.sigmoid(score @ torch.tensor([[1.0], [-1.0]]))))
        norm = (self.identity[twice] ** 2 + self.identity[items] ** 2).mean() + (self.towers[0].preference ** 2).mean()  # type: ignore[operator]
        return bpr + regularisation * norm


class Dragon(nn.Module):
    def __init__(
        self,
        users: int,
        items: int,
        pairs: Tensor,
        features: Sequence[Tensor],
        item_graph: Tensor,
        neighbours: list[list[int]],
        weights: Tensor,
        dim: int = 64,
    ) -> None:
        """``item_graph``: sparse [I, I]; ``neighbours``: K for every user, padded; ``weights`` [U, 1, K]."""
        super().__init__()
        self.users, self.items, self.features = users, items, features
        self.edges = both_ways(pairs, users)
        self.item_graph, self.neighbours, self.neighbour_weights = item_graph, neighbours, weights
        self.preferences = nn.ParameterList(nn.init.xavier_normal_(torch.empty(users, dim)) for _ in features)
        self.hidden = nn.ModuleList(nn.Linear(f.shape[1], 4 * dim) for f in features)
        self.out = nn.ModuleList(nn.Linear(4 * dim, dim) for _ in features)
        start = nn.init.xavier_normal_(torch.empty(users, len(features), 1))
        self.modality_weights = nn.Parameter(torch.softmax(start, dim=1))

    def propagate(self, x: Tensor) -> Tensor:
        degree = torch.zeros(len(x)).scatter_add_(0, self.edges[0], torch.ones(self.edges.shape[1]))
        scale = degree.pow(-0.5)
        scale[scale == float("inf")] = 0.0
        return gather_add(x, self.edges, scale[self.edges[0]] * scale[self.edges[1]], False)

    def forward(self) -> tuple[Tensor, Tensor]:
        towers = []
        for preference, hidden, out, features in zip(
            self.preferences, self.hidden, self.out, self.features, strict=True
        ):
            x = F.normalize(torch.cat((preference, out(F.leaky_relu(hidden(features)))), dim=0))
            once = self.propagate(x)
            towers.append(x + once + self.propagate(once))
        user = torch.cat([t[: self.users].unsqueeze(2) for t in towers], dim=2)
        user = self.modality_weights.transpose(1, 2) * user
        user = torch.cat([user[:, :, m] for m in range(len(towers))], dim=1)
        item = torch.cat([t[self.users :] for t in towers], dim=1)
        item = item + torch.sparse.mm(self.item_graph, item)
        near = user[self.neighbours]
        return user + torch.matmul(self.neighbour_weights, near).squeeze(1), item

    def loss(self, users: Tensor, positives: Tensor, negatives: Tensor, regularisation: float) -> Tensor:
        user, item = self.forward()
        positive = (user[users] * item[positives]).sum(dim=1)
        negative = (user[users] * item[negatives]).sum(dim=1)
        bpr = -torch.mean(torch.log2(torch.sigmoid(positive - negative)))
        norm = torch.stack([(p[users] ** 2).mean() for p in self.preferences]).sum() + (self.modality_weights**2).mean()
        return bpr + regularisation * norm


def both_ways(pairs: Tensor, users: int) -> Tensor:
    """Edges int64 [2, 2n] of the pairs (user, item) int64 [2, n], users before items."""
    there = torch.stack((pairs[0], pairs[1] + users))
    return torch.cat((there, there.flip(0)), dim=1)


def negatives(users: Sequence[int], seen: Sequence[set[int]], items: list[int], rng: random.Random) -> list[int]:
    """One item for each user that the user has not, drawn again until it is so."""
    out = []
    for user in users:
        item = rng.sample(items, 1)[0]
        while item in seen[user]:
            item = rng.sample(items, 1)[0]
        out.append(item)
    return out


def recall_at_20(scores: Tensor, seen: Sequence[set[int]], held_out: Sequence[set[int]]) -> float:
    """Full ranking one user at a time, as the public trainers measure it."""
    values = []
    for user, wanted in enumerate(held_out):
        if not wanted:
            continue
        row = scores[user].clone()
        row[list(seen[user])] = -1e10
        hits = sum(1 for item in torch.topk(row, 20).indices.tolist() if item in wanted)
        values.append(hits / len(wanted))
    return sum(values) / max(len(values), 1)
