"""What an item-kNN run holds in memory: the pairs of items with a user in common."""

from __future__ import annotations

import numpy as np

from graphmill.evaluation.baselines.recommendation import PAIRS
from graphmill.graph.interactions import interaction_relation
from graphmill.graph.typed_graph import TypedGraph
from graphmill.systems.item_knn.settings import ALIKE, NEAREST, ItemKnnSettings
from graphmill.systems.recommenders.memory import closed_form_parts, sizes_of
from graphmill.training.planning import Part, Setup


def memory_parts(graph: TypedGraph, settings: ItemKnnSettings, setup: Setup) -> list[Part]:
    """The parts of one process. A pair counts with its common users, each pair once at most."""
    edges = graph.edges(interaction_relation(graph))
    counts = np.bincount(np.asarray(edges.src)[np.asarray(edges.split) == 0]).astype(float)
    pairs = min(float(np.square(counts).sum()), float(sizes_of(graph).items) ** 2, PAIRS)
    remedy = "leave items out of the graph (graph.k_core)"
    # Common users, similarities, the nearest and their order; in rows and as pairs.
    sizes = sizes_of(graph, () if graph.feature_sets(interaction_relation(graph).target) else None)
    # Features and their copies; the nearest items by them, added to the others for each amount that is tried.
    alike = sizes.items * (3 * sum(sizes.widths) + len(ALIKE) * 3 * NEAREST * (sum(sizes.widths) > 0))
    return [
        Part("pairs of items", "always", pairs, 48, remedy=remedy),
        Part("items alike by features", "always", float(alike)),
        *closed_form_parts(graph),
    ]
