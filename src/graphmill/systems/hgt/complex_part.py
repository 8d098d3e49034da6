"""The ComplEx part of an HGT with a softmax: its settings, and what it adds to a step's cost."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from graphmill.systems.complex.cost import has_reverses, step_cost
from graphmill.systems.complex.settings import ComplexSettings
from graphmill.training.planning import Cost

if TYPE_CHECKING:
    from graphmill.graph.typed_graph import TypedGraph
    from graphmill.systems.hgt.settings import HgtSettings
    from graphmill.training.contract import Execution

DENSE, LARGE = 100, 100_000
"""Links a node from which a graph is dense, and links from which a sparse one is large."""
PASSES = 5
"""Largest number of passes over the links in an epoch: on a graph of few links, more steps would overfit."""


def complex_settings(graph: TypedGraph, settings: HgtSettings) -> ComplexSettings:
    """Settings of the ComplEx recipe: width, steps and seed as in HGT's settings, its own optimizer."""
    edges = sum(relation["split"]["train"] for relation in graph.manifest["relations"])
    links = edges if has_reverses(graph) else 2 * edges
    steps = min(settings.training.complex_steps, math.ceil(PASSES * links / ComplexSettings.base_batch))
    return ComplexSettings.model_validate(
        {
            "recipe": "complex",
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


def with_complex(cost: Cost, graph: TypedGraph, settings: HgtSettings, execution: Execution, precision: str) -> Cost:
    """``cost`` plus the ComplEx part: the sum of what both hold, the larger step, and the mean work of their steps."""
    part = complex_settings(graph, settings)
    own = step_cost(graph, part, "full", execution, precision)
    first, second = settings.training.steps_per_epoch, part.training.steps_per_epoch

    def mean(name: str) -> float:
        return (first * float(getattr(cost, name)) + second * float(getattr(own, name))) / (first + second)

    return replace(
        cost,
        weights=cost.weights + own.weights,
        held=cost.held + own.held,
        step=max(cost.step, own.step),
        gradients=max(cost.gradients, own.gradients),
        evaluation=cost.evaluation + own.evaluation,
        flop=mean("flop"),
        low_flop=mean("low_flop"),
        moved=mean("moved"),
        calls=mean("calls"),
    )
