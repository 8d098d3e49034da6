"""What MMGCN and DRAGON share beyond what all recommenders do: feature sets of the items."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from torch import Tensor

from graphmill.kernels.devices import own_copy
from graphmill.systems.base_recipe import wide
from graphmill.systems.recommenders.modalities import modalities
from graphmill.systems.recommenders.recipe import RecommenderRecipe

if TYPE_CHECKING:
    from graphmill.graph.typed_graph import TypedGraph
    from graphmill.systems.dragon.settings import DragonSettings
    from graphmill.systems.mmgcn.settings import MmgcnSettings

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

    def features(self) -> list[Tensor]:
        """fp32 [I, f] per modality, copies."""
        return [own_copy(np.asarray(modality.features, np.float32)) for modality in self.modalities]


def squares(x: Tensor) -> Tensor:
    """Σ x², at least fp32."""
    return wide(x).square().sum()
