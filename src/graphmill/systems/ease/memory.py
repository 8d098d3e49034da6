"""What an EASE run holds in memory: its matrix of items × items, which is inverted in place."""

from __future__ import annotations

from graphmill.graph.typed_graph import TypedGraph
from graphmill.systems.ease.settings import EaseSettings
from graphmill.systems.recommenders.memory import closed_form_parts, sizes_of
from graphmill.training.planning import Part, Setup


def memory_parts(graph: TypedGraph, settings: EaseSettings, setup: Setup) -> list[Part]:
    """The parts of one process."""
    remedy = "take the system item_knn, whose weights are sparse, or leave items out of the graph"
    return [
        Part("weights between items", "always", float(sizes_of(graph).items) ** 2, remedy=remedy),
        *closed_form_parts(graph),
    ]
