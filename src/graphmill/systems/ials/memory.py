"""What an iALS run holds in memory."""

from __future__ import annotations

from graphmill.graph.typed_graph import TypedGraph
from graphmill.systems.ials.settings import IalsSettings
from graphmill.systems.recommenders.memory import closed_form_parts, sizes_of
from graphmill.training.planning import Part, Setup


def memory_parts(graph: TypedGraph, settings: IalsSettings, setup: Setup) -> list[Part]:
    """The parts of one process: both tables, and the items' in float64 while users are folded in."""
    size, d = sizes_of(graph), settings.model.embedding_dim
    remedy = "lower model.embedding_dim"
    return [
        Part("vectors", "always", size.nodes * d, remedy=remedy),
        Part("vectors of an evaluation", "evaluation", size.items * d, 8, remedy=remedy),
        *closed_form_parts(graph),
    ]
