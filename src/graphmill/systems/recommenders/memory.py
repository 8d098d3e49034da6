"""Shared by the recommenders' tables of memory: sizes of the graph, the pairs of a step, and an evaluation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from graphmill.graph.interactions import UNNAMED, interaction_relation
from graphmill.graph.typed_graph import TypedGraph
from graphmill.kernels.runtime.threads import has_numba
from graphmill.systems.recommenders.multimodal import chosen_sets
from graphmill.systems.recommenders.settings import RecommenderSettings
from graphmill.training.planning import Part, Setup

BYTES_PER_EDGE = 160
"""Both normalised matrices in both orientations, the rows of the view, keys and order of the sampler."""
_SCORES = 5 << 20
"""Scores of a block in an evaluation, with what ranks them on a CPU; on a device ranking takes four times as much."""


@dataclass(frozen=True)
class Sizes:
    """The numbers of users, items and training pairs, and the width of each modality in use."""

    users: int
    items: int
    edges: int
    widths: tuple[int, ...]

    @property
    def nodes(self) -> int:
        """Users and items."""
        return self.users + self.items


def sizes_of(graph: TypedGraph, modalities: Sequence[str] | None = None) -> Sizes:
    """``modalities``: names of the feature sets in use; (): all; None: the system uses none.

    Raises the errors of :func:`chosen_sets`.
    """
    relation = interaction_relation(graph)
    users, items = graph.node_type(relation.source), graph.node_type(relation.target)
    widths = {}
    for name in () if modalities is None else graph.feature_sets(items.name):
        features = graph.features(items.name, name)
        widths[name or UNNAMED] = 0 if features is None else features.shape[1]
    chosen = () if modalities is None else tuple(widths[name] for name in chosen_sets(list(widths), modalities))
    return Sizes(users.count, items.count, int((np.asarray(graph.edges(relation).split) == 0).sum()), chosen)


def pairs_in_place(setup: Setup) -> bool:
    """Whether the loss of pairs reads vectors in place (``kernels/pair_losses/__init__.py``) instead of looking up rows
    for each pair."""
    return setup.on_cpu and setup.precision == "fp32" and has_numba()


def rows_of(settings: RecommenderSettings) -> float:
    """Rows that the pairs of a process name in a step, each as often as it is named."""
    pairs = settings.step_size() / settings.acceleration.processes
    return pairs * (2 + settings.objective.negatives_per_positive)


def pairs_part(settings: RecommenderSettings, width: float, setup: Setup) -> Part:
    """The loss of pairs. In place it holds per row the weight of each negative, int64 row numbers and the index of distinct
    rows; else the rows, their products and gradients.
    """
    return Part("pairs of the loss", "loss", rows_of(settings) * (10 if pairs_in_place(setup) else 3 * width))


def evaluation_part(vectors: float) -> Part:
    """An evaluation by this many numbers in vectors."""
    return Part("vectors and scores of an evaluation", "evaluation", vectors + _SCORES)


def closed_form_parts(graph: TypedGraph) -> list[Part]:
    """The parts of every recommender in closed form: the interactions in several orders, and an evaluation."""
    return [Part("interactions", "always", sizes_of(graph).edges, 64), evaluation_part(0.0)]
