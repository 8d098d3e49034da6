"""DRAGON (Zhou et al., ECAI 2023): representations from the user-item graph, and from user-user and item-item graphs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from graphmill.kernels.products import Linear
from graphmill.kernels.propagation import SparseMatrix, propagate
from graphmill.kernels.recomputed import recomputed
from graphmill.kernels.row_norm import normalise_rows
from graphmill.systems.recommenders.tables import MatrixFactorisation
from graphmill.systems.recommenders.user_item_graph import UserItemGraph, powers_sum

SLOPE = 0.01
HIDDEN = 4
"""The hidden layer of the feature towers has this many times the embedding's width (the authors' 256 for 64)."""


NUM_LAYERS = 2
"""Propagations over the user-item graph, as published. They have no parameters."""


@dataclass(frozen=True)
class DragonConfig:
    """Sizes. ``identity_dim``: width of the id embeddings, which
    are appended."""

    num_users: int
    num_items: int
    embedding_dim: int = 64
    item_layers: int = 1
    identity_dim: int = 0


class Dragon(nn.Module):
    """Per modality m with features F_m and preferences P_m; Â is the symmetrically normalised user-item graph.

        X_m = rows of [P_m ; lrelu(F_m W + b) V + c], each divided by its norm;   R_m = Σ_{ℓ ≤ L} Â^ℓ X_m

    user = [w_{u,m} R_m,u]_m and item = [R_m,i]_m, concatenated over m. The homogeneous graphs then add

        item ← item + Sⁿ item          S: the nearest items by features, frozen user ← user + Σ_k α_uk user_k  over the
        users with the most shared items

    Item vectors depend only on features. With ``identity_dim`` (not in the publication), ``identities`` are trained
    too: a vector per user and item. A score is then the sum of the scores of both parts.
    """  # fmt: skip

    def __init__(self, config: DragonConfig, features: Sequence[Tensor]) -> None:
        """``features``: per modality fp32 [I, f], rows in item order."""
        super().__init__()
        self.config = config
        d = config.embedding_dim
        self.preferences = nn.ParameterList(nn.init.xavier_normal_(torch.empty(config.num_users, d)) for _ in features)
        self.towers = nn.ModuleList(FeatureTower(f, HIDDEN * d, d) for f in features)
        start = nn.init.xavier_normal_(torch.empty(config.num_users, len(features), 1))
        self.modality_weights = nn.Parameter(torch.softmax(start, dim=1).squeeze(2))
        self.identities = None
        if config.identity_dim:
            self.identities = MatrixFactorisation(config.num_users, config.num_items, config.identity_dim)
        self.checkpointing = False

    @property
    def width(self) -> int:
        """Columns of the representation, without ``identities``."""
        return self.config.embedding_dim * len(self.towers)

    def heterogeneous(self, graph: UserItemGraph) -> tuple[Tensor, Tensor]:
        """Users and items after the user-item graph and the fusion, [U, width] and [I, width]."""
        users = torch.cat([normalise_rows(p) for p in self.preferences], dim=1)
        parts = [recomputed(self.checkpointing, tower) for tower in self.towers]
        items = torch.cat(parts, dim=1)
        users, items = powers_sum(graph, users, items, NUM_LAYERS)
        # One column of weights per modality, for all its columns of the representation.
        count, d = len(self.towers), self.config.embedding_dim
        weighted = users.view(-1, count, d) * self.modality_weights.unsqueeze(2)
        return weighted.flatten(1), items

    def add_users(self, users: Tensor, graph: SparseMatrix) -> Tensor:
        """``users`` [U, width] plus the sum over similar users."""
        return propagate(graph, users) + users

    def add_items(self, items: Tensor, graph: SparseMatrix) -> Tensor:
        """``items`` [I, width] plus the sum over similar items."""
        near = items
        for _ in range(self.config.item_layers):
            near = propagate(graph, near)
        return near + items


class FeatureTower(nn.Module):
    """Maps features to normalised item vectors: f → hidden → d."""

    features: Tensor

    def __init__(self, features: Tensor, hidden: int, dim: int) -> None:
        super().__init__()
        self.register_buffer("features", features, persistent=False)
        self.hidden = Linear(features.shape[1], hidden)
        self.out = Linear(hidden, dim)

    def forward(self) -> Tensor:
        """[I, d]."""
        return normalise_rows(self.out(F.leaky_relu_(self.hidden(self.features), SLOPE)))
