"""The system of LightGCN: one propagation over the graph per step, and the loss of pairs on its result."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from graphmill.graph.sorted_unique import sorted_unique
from graphmill.graph.typed_graph import TypedGraph
from graphmill.kernels.table_rows import table_rows
from graphmill.systems.lightgcn.model import LightGCN
from graphmill.systems.lightgcn.settings import LightGcnSettings
from graphmill.systems.recommenders.batch import PairBatch
from graphmill.systems.recommenders.sharded_graph import ShardedUserItemGraph, row_bytes, sharded_user_item_graph
from graphmill.systems.recommenders.system import ITEMS, USERS, PairRows, RecommenderSystem
from graphmill.systems.recommenders.user_item_graph import UserItemGraph, user_item_graph
from graphmill.training.contract import Encoded, Term
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

    def some_vectors(self, model: LightGCN, users: np.ndarray, items: np.ndarray) -> tuple[Tensor, Tensor]:
        """:meth:`vectors` of some users and items; with sharded tables, only these are fetched."""
        if self.shards is None:
            return super().some_vectors(model, users, items)
        with torch.no_grad():
            sides = zip(("user", "item"), model(self._graph), (users, items), strict=True)
            fetched = [
                RowExchange(self.shards.ranks, self.shards.bounds[name], rows, self.device).forward(vectors)
                for name, vectors, rows in sides
            ]
        return fetched[0].float(), fetched[1].float()

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
        return [Term(NORM, total, float(len(chunk)), self.settings.objective.regularisation)]
