"""What a popularity run holds in memory."""

from __future__ import annotations

from graphmill.graph.typed_graph import TypedGraph
from graphmill.systems.popularity.settings import PopularitySettings
from graphmill.systems.recommenders.memory import closed_form_parts
from graphmill.training.planning import Part, Setup


def memory_parts(graph: TypedGraph, settings: PopularitySettings, setup: Setup) -> list[Part]:
    """The parts of one process."""
    return closed_form_parts(graph)
