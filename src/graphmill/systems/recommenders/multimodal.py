"""What MMGCN and DRAGON share beyond what all recommenders do: feature sets of the items."""

from __future__ import annotations

import copy
from abc import abstractmethod
from typing import TYPE_CHECKING, ClassVar, Self

import numpy as np
import torch
from torch import Tensor, nn

from graphmill.errors import InputError, SettingsError
from graphmill.graph.interactions import UNNAMED, interaction_relation
from graphmill.graph.later_nodes import LaterNodes
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

    item_tables: ClassVar[tuple[str, ...]] = ()
    """Tables whose last rows are of the items."""
    embeds_from_features = True
    """A new item's vector needs no interaction."""

    def embed_later(self, model: nn.Module, later: LaterNodes) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """:meth:`graphmill.runs.embed.EmbedsLater.embed_later` of items: what the network makes of their features, over the
        user-item graph with their interactions in it, where there are any. Tables by id have the mean of the items there.

        Raises :class:`InputError` for new nodes of another type, :class:`SettingsError` where features were shuffled.
        """
        grown = self._grown(later)
        with torch.no_grad():
            rows = dict(model.state_dict())
            for name in set(self.item_tables) & rows.keys():
                mean = rows[name][-self.view.num_items :].mean(0, keepdim=True)
                rows[name] = torch.cat((rows[name], mean.expand(grown.view.num_items - self.view.num_items, -1)))
            bigger = grown.make_model().to(self.device)
            bigger.load_state_dict(rows)
            items = grown.vectors(bigger.eval())[1][self.view.num_items :]
        return items.cpu().numpy(), {}

    def _grown(self, later: LaterNodes) -> Self:
        """The same system on the graph with the new items behind the known ones."""
        kinds = [t.name for t in self.graph.node_types]
        relation = interaction_relation(self.graph)
        number = kinds.index(relation.target)
        if others := [
            kind for kind, count in zip(kinds, later.counts, strict=True) if count and kind != relation.target
        ]:
            raise InputError(
                f"{self.name} has vectors for new items, and the file has new nodes of type {', '.join(others)}; people are "
                "recommended to from their history: graphmill recommend --history"
            )
        if self.settings.model.shuffle_features:  # type: ignore[attr-defined]
            raise SettingsError(
                "model.shuffle_features: features say nothing of an item in this run, a new one's neither"
            )
        count = later.counts[number]
        more = {
            name or UNNAMED: later.features.get((number, name)) for name in self.graph.feature_sets(relation.target)
        }
        grown = copy.copy(self)
        grown.modalities = [m.with_items(more[m.name], count) for m in self.modalities]
        grown.view = self.view.with_items(count, later.edges[relation.index])
        return grown.on_view()

    @abstractmethod
    def on_view(self) -> Self:
        """Itself, with the graphs that follow from ``view`` and ``modalities`` made again."""

    def features(self) -> list[Tensor]:
        """fp32 [I, f] per modality, copies."""
        return [own_copy(np.asarray(modality.features, np.float32)) for modality in self.modalities]


def squares(x: Tensor) -> Tensor:
    """Σ x², at least fp32."""
    return wide(x).square().sum()
