"""The system of LightGCN: one propagation over the graph per step, and the loss of pairs on its result."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from graphmill.graph.interactions import Interactions
from graphmill.graph.sorted_unique import sorted_unique
from graphmill.graph.typed_graph import TypedGraph
from graphmill.kernels.table_rows import table_rows
from graphmill.systems.lightgcn.model import LightGCN
from graphmill.systems.lightgcn.settings import LightGcnSettings
from graphmill.systems.recommenders.memory import BYTES_PER_EDGE, evaluation_part, pairs_part, rows_of, sizes_of
from graphmill.systems.recommenders.sharded_product import ShardedMatrix
from graphmill.systems.recommenders.system import ITEMS, USERS, PairBatch, PairRows, RecommenderSystem
from graphmill.systems.recommenders.user_item_graph import UserItemGraph, user_item_graph
from graphmill.training.contract import Encoded, Term
from graphmill.training.planning import Part, Setup
from graphmill.training.processes import Ranks
from graphmill.training.sharding import RowExchange, Shards, divide

NORM = "norm"
TABLE, WHICH = "table of ", "numbers of "
"""Where tables are divided, beside a final vector: its row of the table, and the number that it has there."""


class LightGcnSystem(RecommenderSystem[LightGCN]):
    """L = loss of the pairs + λ mean ½(‖u‖² + ‖i‖² + mean ‖j‖²), the norms of table rows before propagation."""

    settings: LightGcnSettings
    term_names = (NORM,)
    can_checkpoint = False

    def __init__(self, graph: TypedGraph, settings: LightGcnSettings, batching: str) -> None:
        super().__init__(graph, settings, batching)
        self.user_item: UserItemGraph | ShardedUserItemGraph | None = None

    def shard(self, ranks: Ranks) -> None:
        """Divides users and items separately into ranges, so that every rank has a part of both sides of a layer."""
        view, d = self.view, self.settings.model.embedding_dim
        bounds = {
            name: divide(row_bytes(rows.counts, d), ranks.world)
            for name, rows in (("user", view.train), ("item", view.train_by_item))
        }
        self.shards = Shards(ranks, bounds)

    def make_model(self) -> LightGCN:
        """The model with both tables; the system keeps the graph."""
        m = self.settings.model
        return LightGCN(self.view.num_users, self.view.num_items, m.embedding_dim, m.num_layers)

    def to(self, device: torch.device) -> None:
        """Moves the graph to the device; with sharded tables, only the edges into this rank's rows."""
        super().to(device)
        view = self.view
        if self.shards is not None:
            self.user_item = sharded_user_item_graph(view, self.shards, device)
        elif self.user_item is None:
            train = view.train
            whole = user_item_graph(train.row, train.columns, view.num_users, view.num_items, "symmetric")
            self.user_item = whole.to(device)
        else:
            self.user_item = self.user_item.to(device)  # type: ignore[union-attr]

    def encode(self, model: LightGCN, batch: PairBatch) -> Encoded:
        """Final vectors of all users and items; with sharded tables, only of the batch's, with their table rows."""
        users, items = model(self._graph)
        if self.shards is None:
            return Encoded({USERS: users, ITEMS: items})
        wanted = (
            sorted_unique(batch.users),
            sorted_unique(np.concatenate((batch.positives, batch.negatives.reshape(-1)))),
        )
        tensors: dict[str, Tensor] = {}
        for name, table, final, which in zip(
            (USERS, ITEMS), (model.user, model.item), (users, items), wanted, strict=True
        ):
            exchange = RowExchange(self.shards.ranks, self.shards.bounds[name[:-1]], which, self.device)
            tensors |= {
                name: exchange.fetch(final),
                TABLE + name: exchange.fetch(table),
                WHICH + name: self._tensor(which),
            }
        return Encoded(tensors)

    @property
    def _graph(self) -> UserItemGraph | ShardedUserItemGraph:
        if self.user_item is None:
            self.to(self.device)
        assert self.user_item is not None
        return self.user_item

    def rows(self, model: LightGCN, users: np.ndarray, items: np.ndarray, encoded: Encoded) -> PairRows:
        """Final vectors, and the places of ``users`` int64 [B] and ``items`` int64 [B, n] among them."""
        places = self._places(encoded, (USERS, ITEMS), users, items)
        return PairRows(encoded.tensors[USERS], encoded.tensors[ITEMS], *places)

    def _places(self, encoded: Encoded, names: Sequence[str], *rows: np.ndarray) -> list[Tensor]:
        wanted = self._tensors(*rows)
        if self.shards is None:
            return wanted
        return [torch.searchsorted(encoded.tensors[WHICH + n], w) for n, w in zip(names, wanted, strict=True)]

    def vectors(self, model: LightGCN) -> tuple[Tensor, Tensor]:
        """Users [U, d] and items [I, d], fp32, of the model in eval mode; every rank gets all of them."""
        if self.shards is None:
            return super().vectors(model)
        with torch.no_grad():
            users, items = model(self._graph)
        bounds = self.shards.bounds
        return self.shards.whole(bounds["user"], users).float(), self.shards.whole(bounds["item"], items).float()

    def extra_terms(self, model: LightGCN, chunk: PairBatch, encoded: Encoded) -> list[Term]:
        """The norm of the chunk's table rows."""
        user = encoded.tensors.get(TABLE + USERS, model.user)
        item = encoded.tensors.get(TABLE + ITEMS, model.item)
        places = (chunk.users, chunk.positives, chunk.wrong.reshape(-1))
        users, items, wrong = self._places(encoded, (USERS, ITEMS, ITEMS), *places)
        positives = table_rows(user, users).square().sum()
        positives = positives + table_rows(item, items).square().sum()
        others = table_rows(item, wrong).square().sum()
        total = (positives + others / chunk.wrong.shape[1]) / 2
        return [Term(NORM, total, self.settings.objective.regularisation)]


def memory_parts(graph: TypedGraph, settings: LightGcnSettings, setup: Setup) -> list[Part]:
    """The parts of one process."""
    size, d = sizes_of(graph), settings.model.embedding_dim
    table = size.nodes * d
    return [
        Part("embeddings", "weights", table),
        Part("interactions and the user-item matrix", "always", size.edges, BYTES_PER_EDGE),
        # Vectors of two layers, the final vectors and their gradient.
        Part("vectors of the layers", "kept", 4 * table),
        pairs_part(settings, d, setup),
        Part("rows for the norm", "loss", rows_of(settings) * d * 2),
        evaluation_part(4 * table),
    ]


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
