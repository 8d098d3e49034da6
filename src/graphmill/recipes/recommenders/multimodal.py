"""What MMGCN and DRAGON share beyond what all recommenders do: feature sets of the items, and several negatives a pair."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from graphmill.kernels.losses import bpr_losses, row_dots
from graphmill.kernels.table_rows import table_rows
from graphmill.recipes.recommenders.batch import BPR, PairBatch
from graphmill.recipes.recommenders.modalities import modalities
from graphmill.recipes.recommenders.recipe import ITEMS, USERS, RecommenderRecipe
from graphmill.sampling.interactions import PairSampler
from graphmill.training.contract import Encoded, Term

if TYPE_CHECKING:
    from graphmill.graph.typed_graph import TypedGraph
    from graphmill.recipes.recommenders.dragon.settings import DragonSettings
    from graphmill.recipes.recommenders.mmgcn.settings import MmgcnSettings

NORM = "regularisation"
"""The term of the tables' squares."""
MOST_ROWS = 0.7
"""Above this part of all rows, the product with a whole graph is cheaper than cutting it."""


class MultimodalRecipe(RecommenderRecipe):
    """``self.modalities``: the feature sets in the order of the network's towers."""

    def __init__(self, graph: TypedGraph, settings: MmgcnSettings | DragonSettings, batching: str) -> None:
        super().__init__(graph, settings, batching)
        m, seed = settings.model, settings.training.seed
        self.modalities = modalities(self.view, m.modalities, shuffle=m.shuffle_features, seed=seed)
        self.sampler = PairSampler(
            self.view.train,
            self.view.num_items,
            settings.step_size(),
            seed,
            draw=self.draw,
            negatives=self.negatives,
            per_positive=settings.objective.negatives_per_positive,
        )

    def features(self) -> list[Tensor]:
        """fp32 [I, f] per modality, copies."""
        return [torch.from_numpy(np.array(modality.features, np.float32)) for modality in self.modalities]

    def terms(self, model: nn.Module, chunk: PairBatch, encoded: Encoded | None) -> list[Term]:
        """BPR of each pair against each of its k negatives, their mean a pair, and the system's own terms."""
        assert encoded is not None
        negatives = chunk.negatives.reshape(len(chunk), -1)
        user, items = self.rows(model, chunk.users, np.column_stack((chunk.positives, negatives)), encoded)
        each = row_dots(user.repeat_interleave(items.shape[1], 0), items.flatten(0, 1)).view(len(chunk), -1)
        losses = bpr_losses(each[:, :1], each[:, 1:]).mean(1)
        own = self.extra_terms(model, chunk, encoded)
        return [Term(BPR, losses.sum(), float(len(chunk)), self.bpr_scale), *own]

    def rows(self, model: nn.Module, users: np.ndarray, items: np.ndarray, encoded: Encoded) -> tuple[Tensor, Tensor]:
        """Final vectors of ``users`` int64 [B], [B, d], and of ``items`` int64 [B, n], [B, n, d]."""
        tensors = encoded.tensors
        found = table_rows(tensors[ITEMS], self._tensor(items))
        return table_rows(tensors[USERS], self._tensor(users)), found
