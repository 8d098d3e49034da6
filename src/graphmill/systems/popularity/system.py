"""The system of popularity: one score for each item, the same for every user."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from graphmill.errors import SettingsError
from graphmill.graph.interactions import interaction_relation
from graphmill.graph.splits import TRAIN
from graphmill.graph.typed_graph import TypedGraph
from graphmill.systems.popularity.settings import PopularitySettings
from graphmill.systems.recommenders.closed_form import ItemClosedForm
from graphmill.training.solved import SolvedArrays

DAY = 86_400


class PopularitySystem(ItemClosedForm):
    """``counts`` float32 [I]: training interactions of each item."""

    ARRAYS = ("counts",)
    settings: PopularitySettings

    def __init__(self, graph: TypedGraph, settings: PopularitySettings, batching: str) -> None:
        """Raises SettingsError for ``days`` on interactions without times."""
        super().__init__(graph, settings, batching)
        self.interactions = graph.edges(interaction_relation(graph))
        if settings.model.days and self.interactions.timestamp is None:
            raise SettingsError(
                f"model.days: the interactions of {graph.path} have no times; leave it out, or build the graph from a file "
                "with a timestamp column"
            )

    def fitted(self, poll: Callable[[], None]) -> Mapping[str, np.ndarray]:
        """The counts; items without an interaction in the last days come after the others, by their count of all time."""
        every = self.view.train_by_item.counts.astype(np.float32)
        if not self.settings.model.days:
            return {"counts": every}
        train = np.asarray(self.interactions.split) == TRAIN
        times, items = np.asarray(self.interactions.timestamp)[train], np.asarray(self.interactions.dst)[train]
        late = times > times.max() - self.settings.model.days * DAY
        counts = np.bincount(items[late], minlength=self.view.num_items)
        return {"counts": (counts + every / (every.sum() + 1.0)).astype(np.float32)}

    def scores(self, model: SolvedArrays, met: sp.csr_matrix) -> Tensor:
        """The counts, for every user."""
        return torch.from_numpy(model.array("counts")).expand(met.shape[0], -1).contiguous()
