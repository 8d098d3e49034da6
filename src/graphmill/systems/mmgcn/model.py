"""MMGCN (Wei et al., MM 2019): one graph network per modality on the user-item graph, combined by shared ID embeddings.

Users and items are separate tensors throughout, so that a constant side is not propagated again or differentiated.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from graphmill.kernels.products import Linear, linear
from graphmill.kernels.recomputed import recomputed
from graphmill.kernels.row_norm import normalise_rows
from graphmill.systems.recommenders.user_item_graph import UserItemGraph

SLOPE = 0.01
"""Of every leaky ReLU."""


@dataclass(frozen=True)
class MMGCNConfig:
    """Sizes. ``latent_dims``: per modality the width to which its features are mapped; 0 = not mapped."""

    num_users: int
    num_items: int
    latent_dims: tuple[int, ...]
    embedding_dim: int = 64
    num_layers: int = 3
    combination: str = "concatenate"
    trainable_embeddings: bool = True


class MMGCN(nn.Module):
    """Per modality m with features F_m, preferences P_m, shared ID embeddings Z; d = ``embedding_dim``.

        X⁰ = rows of [P_m ; F_m W + b] (or [P_m ; F_m]), each divided by its norm
        h = lrelu(Ā X W_ℓ),  x̂ = lrelu(X A_ℓ + a_ℓ) + Z
        X ← lrelu([h ‖ x̂] G_ℓ + g_ℓ)   (concatenate)   or   lrelu(h G_ℓ + g_ℓ + x̂)   (add, the paper's element-wise)

    and the representation is the mean over modalities. Ā is the mean over neighbours; W_ℓ is square; the other matrices
    map to width d.
    """  # fmt: skip

    def __init__(self, config: MMGCNConfig, features: Sequence[Tensor]) -> None:
        """``features``: per modality fp32 [I, f], rows in item order."""
        super().__init__()
        self.config = config
        shape = (config.num_users + config.num_items, config.embedding_dim)
        self.identity = _table(
            nn.init.xavier_normal_(torch.empty(shape)), config.trainable_embeddings, self, "identity"
        )
        self.towers = nn.ModuleList(Tower(config, f, w) for f, w in zip(features, config.latent_dims, strict=True))
        self.checkpointing = False

    def forward(self, graph: UserItemGraph) -> tuple[Tensor, Tensor]:
        """Users [U, d] and items [I, d]; a score is their dot product."""
        ids = self.identity.split((self.config.num_users, self.config.num_items))
        users, items = self.towers[0](graph, ids, self.checkpointing)
        for tower in self.towers[1:]:
            more_users, more_items = tower(graph, ids, self.checkpointing)
            users, items = users + more_users, items + more_items
        count = len(self.towers)
        return (users, items) if count == 1 else (users / count, items / count)


class Tower(nn.Module):
    """The graph network of one modality."""

    features: Tensor

    def __init__(self, config: MMGCNConfig, features: Tensor, latent: int) -> None:
        super().__init__()
        self.latent = latent
        width = latent or features.shape[1]
        # Constants are data of the run and not part of its checkpoints.
        self.register_buffer("features", features if latent else normalise_rows(features), persistent=False)
        self.projection = Linear(features.shape[1], latent) if latent else None
        table = nn.init.xavier_normal_(torch.empty(config.num_users, width))
        self.preference = _table(table, config.trainable_embeddings, self, "preference")
        widths = [width] + [config.embedding_dim] * (config.num_layers - 1)
        self.layers = nn.ModuleList(
            Layer(w, config.embedding_dim, config.combination, number == 0) for number, w in enumerate(widths)
        )
        self._folded: tuple[tuple[object, ...], tuple[Tensor | None, Tensor | None, Tensor | None]] | None = None

    def forward(
        self, graph: UserItemGraph, ids: Sequence[Tensor], checkpointing: bool = False
    ) -> tuple[Tensor, Tensor]:
        """``ids``: ID embeddings of users [U, d] and items [I, d]. The last layer's result."""
        users, user_mean, item_mean = self._constants(graph)
        items = self.features
        if self.projection is not None:
            items = normalise_rows(self.projection(items))
        for number, layer in enumerate(self.layers):
            means = (user_mean, item_mean) if number == 0 else (None, None)
            users, items = recomputed(checkpointing, layer, graph, users, items, ids, means)
        return users, items

    def _constants(self, graph: UserItemGraph) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """Normalised preferences and, if their inputs are constant, the first layer's means over neighbours.

        Constants are computed once, and again after tables are loaded or moved.
        """
        trained = isinstance(self.preference, nn.Parameter)
        constants = (self.features,) if trained else (self.features, self.preference)
        key = (graph, *(part for t in constants for part in (t.data_ptr(), t._version, t.dtype, t.device)))
        if self._folded is None or self._folded[0] != key:
            with torch.no_grad(), torch.autocast(self.features.device.type, enabled=False):
                to_users = graph.to_users(self.features) if self.projection is None else None
                users = None if trained else normalise_rows(self.preference)
                self._folded = (key, (users, to_users, None if users is None else graph.to_items(users)))
        users, to_users, to_items = self._folded[1]
        return (normalise_rows(self.preference) if users is None else users), to_users, to_items


class Layer(nn.Module):
    """One layer: see :class:`MMGCN`."""

    def __init__(self, width: int, dim: int, combination: str, first: bool) -> None:
        super().__init__()
        self.message = nn.Parameter(nn.init.xavier_normal_(torch.empty(width, width)))
        self.inner = nn.Linear(width, dim)
        self.concatenate = combination == "concatenate"
        self.joint = nn.Linear(width + dim if self.concatenate else width, dim)
        nn.init.xavier_normal_(self.inner.weight)
        if first:
            nn.init.xavier_normal_(self.joint.weight)

    def forward(
        self,
        graph: UserItemGraph,
        users: Tensor,
        items: Tensor,
        identity: Sequence[Tensor],
        means: tuple[Tensor | None, Tensor | None],
    ) -> tuple[Tensor, Tensor]:
        """``means``: the means over neighbours of ``items`` and of ``users``, if already computed."""
        to_users = _messages(graph.to_users, items, self.message, means[0], len(users))
        to_items = _messages(graph.to_items, users, self.message, means[1], len(items))
        return self.join(to_users, users, identity[0]), self.join(to_items, items, identity[1])

    def join(self, messages: Tensor, rows: Tensor, identity: Tensor) -> Tensor:
        """The next vectors [n, d] of one side from its messages [n, width], its own rows [n, width] and ID embeddings
        [n, d].

        ``messages`` are overwritten.
        """
        messages = F.leaky_relu_(messages, SLOPE)
        inner = F.leaky_relu_(linear(rows, self.inner.weight, self.inner.bias), SLOPE) + identity
        weight, bias = self.joint.weight, self.joint.bias
        if not self.concatenate:
            return F.leaky_relu_(linear(messages, weight, bias) + inner, SLOPE)
        # [h ‖ x̂] G = h G₁ + x̂ G₂, without the copy.
        first, second = weight.split((messages.shape[1], inner.shape[1]), dim=1)
        return F.leaky_relu_(linear(messages, first, bias) + linear(inner, second), SLOPE)


def _messages(
    propagate: Callable[[Tensor], Tensor],
    senders: Tensor,
    weight: Tensor,
    mean: Tensor | None,
    receivers: int,
) -> Tensor:
    """Ā X W. ``mean``: Ā X, if already computed."""
    if mean is not None:
        return linear(mean, weight.T)
    # Ā(XW) = (ĀX)W: the product is made on the side with fewer rows.
    few = len(senders) <= receivers
    return propagate(linear(senders, weight.T)) if few else linear(propagate(senders), weight.T)


def _table(values: Tensor, trained: bool, owner: nn.Module, name: str) -> Tensor:
    """A parameter, or a buffer that is saved with the weights; the caller assigns it to ``name``."""
    if trained:
        return nn.Parameter(values)
    owner.register_buffer(name, values)
    return values
