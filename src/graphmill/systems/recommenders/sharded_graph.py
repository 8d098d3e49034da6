"""The user-item graph of one rank: the edges into its users and items."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from graphmill.graph.interactions import Interactions
from graphmill.training.sharded_product import ShardedMatrix
from graphmill.training.sharding import Shards

_EDGE = 24.0
"""Bytes of an edge: its column and value in both orders."""


def row_bytes(degrees: np.ndarray, dim: int) -> np.ndarray:
    """[rows] bytes of a row and the edges into it: vector, gradient, two moments, and two results of a layer."""
    return 6.0 * 4.0 * dim + _EDGE * degrees


@dataclass(frozen=True, eq=False)
class ShardedUserItemGraph:
    """:class:`~graphmill.systems.recommenders.user_item_graph.UserItemGraph` sharded by rows: input and output are the
    rank's rows."""

    user_rows: ShardedMatrix
    item_rows: ShardedMatrix

    def to_users(self, items: Tensor) -> Tensor:
        """Rows of this rank's items → rows of its users."""
        return self.user_rows.product(items)

    def to_items(self, users: Tensor) -> Tensor:
        """Rows of this rank's users → rows of its items."""
        return self.item_rows.product(users)


def sharded_user_item_graph(view: Interactions, shards: Shards, device: torch.device) -> ShardedUserItemGraph:
    """This rank's part of the training interactions, with weights 1 / √(degree of user · degree of item)."""
    matrices = []
    sides = ("user", view.train, "item", view.train_by_item), ("item", view.train_by_item, "user", view.train)
    for name, rows, other, columns in sides:
        first, last = shards.range_of(name)
        indptr = rows.indptr[first : last + 1]
        column = rows.columns[indptr[0] : indptr[-1]]
        degree = np.repeat(rows.counts[first:last].astype(np.float64), rows.counts[first:last])
        value = 1.0 / np.sqrt(degree * columns.counts[column])
        bounds = shards.bounds[other]
        matrices.append(ShardedMatrix(shards.ranks, bounds, indptr - indptr[0], column, value, device))
    return ShardedUserItemGraph(*matrices)
