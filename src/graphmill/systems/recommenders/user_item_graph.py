"""The user-item graph as two rectangular matrices, so that a constant side is not multiplied together with the other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from graphmill.kernels.propagation import SparseMatrix, propagate, sparse_matrix


@dataclass(frozen=True, eq=False)
class UserItemGraph:
    """``user_rows`` [U, I] and ``item_rows`` [I, U]: the blocks of the normalised adjacency, each with its transpose."""

    user_rows: SparseMatrix
    item_rows: SparseMatrix

    def to_users(self, items: Tensor) -> Tensor:
        """[I, d] → [U, d]; 0 for a user without interactions."""
        return propagate(self.user_rows, items)

    def to_items(self, users: Tensor) -> Tensor:
        """[U, d] → [I, d]; 0 for an item without interactions."""
        return propagate(self.item_rows, users)

    def to(self, device: torch.device) -> UserItemGraph:
        """A copy of the graph on the device."""
        return UserItemGraph(self.user_rows.to(device), self.item_rows.to(device))


def user_item_graph(
    user: np.ndarray, item: np.ndarray, num_users: int, num_items: int, norm: Literal["symmetric", "mean"]
) -> UserItemGraph:
    """The graph of interactions (``user[e]``, ``item[e]``), each pair once.

    symmetric: 1 / √(degree of user · degree of item); mean: 1 / degree of the row.
    """
    of_user = np.bincount(user, minlength=num_users).astype(np.float64)[user]
    of_item = np.bincount(item, minlength=num_items).astype(np.float64)[item]
    if norm == "symmetric":
        matrix = sparse_matrix(user, item, 1.0 / np.sqrt(of_user * of_item), (num_users, num_items))
        turned = SparseMatrix(matrix.shape[::-1], matrix.transpose, matrix.forward, torch.argsort(matrix.order))
        return UserItemGraph(matrix, turned)
    return UserItemGraph(
        sparse_matrix(user, item, 1.0 / of_user, (num_users, num_items)),
        sparse_matrix(item, user, 1.0 / of_item, (num_items, num_users)),
    )


def powers_sum(graph: UserItemGraph, users: Tensor, items: Tensor, layers: int) -> tuple[Tensor, Tensor]:
    """Σ_{ℓ ≤ L} Â^ℓ X of both sides [U, d] and [I, d], by Horner's rule: R ← X + Â R, L times."""
    first_users, first_items = users, items
    for _ in range(layers):
        users, items = first_users + graph.to_users(items), first_items + graph.to_items(users)
    return users, items
