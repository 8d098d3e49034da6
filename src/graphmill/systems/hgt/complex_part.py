"""The settings of the ComplEx part of an HGT with a softmax."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from graphmill.systems.factor.memory import has_reverses
from graphmill.systems.factor.settings import FactorSettings

if TYPE_CHECKING:
    from graphmill.graph.typed_graph import TypedGraph
    from graphmill.systems.hgt.settings import HgtSettings

DENSE, LARGE = 100, 100_000
"""Links a node from which a graph is dense, and links from which a sparse one is large."""
PASSES = 5
"""Largest number of passes over the links in an epoch: on a graph of few links, more steps would overfit."""


def complex_settings(graph: TypedGraph, settings: HgtSettings) -> FactorSettings:
    """Settings of the ComplEx system: width, steps and seed as in HGT's settings, its own optimizer."""
    edges = sum(relation["split"]["train"] for relation in graph.manifest["relations"])
    links = edges if has_reverses(graph) else 2 * edges
    steps = min(settings.training.complex_steps, math.ceil(PASSES * links / FactorSettings.base_batch))
    return FactorSettings.model_validate(
        {
            "system": "complex",
            "data": settings.data,
            "model": {"embedding_dim": settings.complex_width},
            "objective": {"n3": n3_of(links, graph.num_nodes)},
            "training": {"steps_per_epoch": max(steps, 1), "seed": settings.training.seed},
        }
    )


def n3_of(links: int, nodes: int) -> float:
    """λ of the part's N3 norm: the more links determine the vectors, the less norm they need. ``links``: both directions."""
    if links >= DENSE * nodes:
        return 0.02
    return 0.05 if links >= LARGE else 0.1
