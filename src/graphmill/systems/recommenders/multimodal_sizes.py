"""Shared by the planner's formulas of recommenders: sizes read from a typed graph, and the loss of pairs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from graphmill.graph.interactions import UNNAMED, interaction_relation
from graphmill.graph.typed_graph import TypedGraph
from graphmill.kernels.runtime.threads import has_numba
from graphmill.systems.recommenders.modalities import chosen_sets
from graphmill.systems.recommenders.settings import RecommenderSettings
from graphmill.training.device import choose_device

WIDE = 4
SCORES = 5 << 20
"""Scores of a block in an evaluation, with what ranks them on a CPU; on a device ranking takes four times as much."""


@dataclass(frozen=True)
class Sizes:
    """The numbers of users, items and training pairs, and the width of each modality in use."""

    users: int
    items: int
    edges: int
    widths: tuple[int, ...]
    bytes_per_edge: int = 160
    """Both normalised matrices in both orientations, the rows of the view, keys and order of the sampler."""


def sizes_of(graph: TypedGraph, modalities: Sequence[str] | None = None) -> Sizes:
    """``modalities``: names of the feature sets in use; (): all; None: the system uses none.

    Raises the errors of :func:`chosen_sets`.
    """
    relation = interaction_relation(graph)
    users, items = graph.node_type(relation.source), graph.node_type(relation.target)
    widths = {}
    if modalities is not None:
        for name in graph.feature_sets(items.name):
            found = graph.features(items.name, name)
            widths[name or UNNAMED] = 0 if found is None else found.shape[1]
    chosen = () if modalities is None else tuple(widths[name] for name in chosen_sets(list(widths), modalities))
    return Sizes(users.count, items.count, int((np.asarray(graph.edges(relation).split) == 0).sum()), chosen)


def pairs_in_place(settings: RecommenderSettings, precision: str = "fp32") -> bool:
    """Whether the loss of pairs reads vectors in place (``kernels/pair_losses/__init__.py``) instead of looking up rows
    for each pair.

    ``precision``: of the vectors; tables are always fp32.
    """
    device = choose_device(settings.acceleration.device, or_cpu=True).device
    return device.type == "cpu" and precision == "fp32" and has_numba()


def pairs_kept(pairs: float, negatives: int, width: int, in_place: bool) -> float:
    """4-byte numbers that the loss of some pairs holds: the weight of each negative, int64 row numbers, and the index
    of distinct rows; or the rows, if these are more.
    """
    return pairs * (2 + negatives) * 10 if in_place else pairs * (2 + negatives) * width * 3
