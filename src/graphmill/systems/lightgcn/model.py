"""LightGCN: a vector per user and item, averaged over propagation layers without weights."""

from __future__ import annotations

from torch import Tensor

from graphmill.systems.recommenders.tables import MatrixFactorisation
from graphmill.systems.recommenders.user_item_graph import UserItemGraph, powers_sum


class LightGCN(MatrixFactorisation):
    """``user`` [U, d] and ``item`` [I, d]. Â is the symmetrically normalised user-item graph, L the number of layers.

        E = 1 / (L + 1) · Σ_{ℓ ≤ L} Â^ℓ [user ; item]

    There are no weight matrices and no activations (He et al. 2020, arXiv 2002.02126, equation 7 with equal weights).
    """  # fmt: skip

    def __init__(self, num_users: int, num_items: int, dim: int, num_layers: int) -> None:
        super().__init__(num_users, num_items, dim)
        self.num_layers = num_layers

    def forward(self, graph: UserItemGraph) -> tuple[Tensor, Tensor]:
        """Final vectors of users [U, d] and items [I, d]."""
        users, items = powers_sum(graph, self.user, self.item, self.num_layers)
        return users / (self.num_layers + 1), items / (self.num_layers + 1)
