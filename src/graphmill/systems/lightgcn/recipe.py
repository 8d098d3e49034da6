"""LightGCN as the engine sees it: one smoothing over the graph a step, the pairs' loss on what comes of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import nn

from graphmill.kernels.table_rows import table_rows
from graphmill.systems.lightgcn.model import LightGCN
from graphmill.systems.lightgcn.settings import LightGcnSettings
from graphmill.systems.recommenders.batch import PairBatch
from graphmill.systems.recommenders.recipe import ITEMS, USERS, RecommenderRecipe
from graphmill.systems.recommenders.user_item_graph import user_item_graph
from graphmill.training.contract import Encoded, Term

if TYPE_CHECKING:
    from graphmill.graph.typed_graph import TypedGraph

NORM = "norm"


class LightGcnRecipe(RecommenderRecipe):
    """L = loss of the pairs + λ mean ½(‖u‖² + ‖i‖² + mean ‖j‖²), the norms of table rows before the smoothing."""

    settings: LightGcnSettings
    term_names = (NORM,)

    def __init__(self, graph: TypedGraph, settings: LightGcnSettings, batching: str) -> None:
        super().__init__(graph, settings, batching)
        train = self.view.train
        self.user_item = user_item_graph(
            train.row, train.columns, self.view.num_users, self.view.num_items, "symmetric"
        )

    def make_model(self) -> LightGCN:
        """The tables; the graph is a constant of the recipe."""
        m = self.settings.model
        return LightGCN(self.view.num_users, self.view.num_items, m.embedding_dim, m.num_layers)

    def to(self, device: torch.device) -> None:
        """The graph to the device."""
        super().to(device)
        self.user_item = self.user_item.to(device)

    def encode(self, model: nn.Module, batch: PairBatch) -> Encoded:
        """Final vectors of all users and items."""
        assert isinstance(model, LightGCN)
        users, items = model(self.user_item)
        return Encoded({USERS: users, ITEMS: items})

    def extra_terms(self, model: nn.Module, chunk: PairBatch, encoded: Encoded) -> list[Term]:
        """The norm of the chunk's table rows."""
        assert isinstance(model, LightGCN)
        negatives = chunk.negatives.reshape(len(chunk), -1)
        own = table_rows(model.user, self._tensor(chunk.users)).square().sum()
        own = own + table_rows(model.item, self._tensor(chunk.positives)).square().sum()
        others = table_rows(model.item, self._tensor(np.ascontiguousarray(negatives).reshape(-1))).square().sum()
        total = (own + others / negatives.shape[1]) / 2
        return [Term(NORM, total, float(len(chunk)), self.settings.objective.regularisation)]
