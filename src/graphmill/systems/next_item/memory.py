"""What a next-item system in closed form holds in memory."""

from __future__ import annotations

import numpy as np

from graphmill.graph.interactions import interaction_relation
from graphmill.graph.typed_graph import TypedGraph
from graphmill.systems.next_item.settings import NextItemSettings, SessionKnnSettings
from graphmill.training.planning import Part, Setup

_SCORES = 5 << 20


def memory_parts(graph: TypedGraph, settings: NextItemSettings, setup: Setup) -> list[Part]:
    """The parts of one process. Pairs of items count with their common users, each pair once at most."""
    relation = interaction_relation(graph)
    counts = np.bincount(np.asarray(graph.edges(relation).src)).astype(float)
    items, edges = graph.node_type(relation.target).count, counts.sum()
    pairs = (
        min(float(np.square(counts).sum()), float(items) ** 2) if isinstance(settings, SessionKnnSettings) else edges
    )
    return [
        Part("pairs of items", "always", pairs, 24, remedy="take the system markov, or leave items out of the graph"),
        Part("interactions", "always", edges, 64),
        Part("scores of an evaluation", "evaluation", _SCORES),
    ]
