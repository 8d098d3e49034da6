"""The settings of ComplEx as a part of a blend and as the baseline beside any ranking of links: one run for both."""

from __future__ import annotations

import math
from typing import Any

from graphmill.graph.typed_graph import TypedGraph
from graphmill.systems.factor.memory import has_reverses, scores_per_link
from graphmill.systems.factor.settings import FactorSettings

MINUTES = 1.2
"""Largest time of the training, in minutes of one CPU core. It is counted by the amount of work, so that every machine does
the same."""
EPOCHS, MOST_PASSES = 14, 35
"""Equal parts of the training, of which the best by validation is taken; and the most passes over the links of a graph so
small that the time would allow more."""
DENSE, LARGE = 70, 100_000
"""Links a node from which a graph is dense, and links from which a sparse one is large."""
FLOP_A_SECOND, BYTES_A_SECOND = 25e9, 4e9
"""Assumed rates of one core, which turn the minutes into an amount of work."""
QUERIES = 500
"""Validation links of a relation on which an epoch is judged."""


def complex_values(graph: TypedGraph, seed: int, device: str) -> dict[str, Any]:
    """The settings, by the size of the graph."""
    edges = sum(relation["split"]["train"] for relation in graph.manifest["relations"])
    links = edges if has_reverses(graph) else 2 * edges
    values: dict[str, Any] = {
        "system": "complex",
        "data": str(graph.path),
        "preset": "none",
        "objective": {"n3": n3_of(links, graph.num_nodes), "relation_weight": 0.0},
        "training": {"seed": seed, "epochs": EPOCHS, "patience_epochs": 0},
        "acceleration": {"device": device, "precision": "fp32"},
        "evaluation": {"eval_every": 2, "max_queries": QUERIES},
        "export": {"csv": False},
    }
    steps = min(
        60 * MINUTES / _seconds_a_step(graph, values), MOST_PASSES * math.ceil(links / FactorSettings.base_batch)
    )
    values["training"]["steps_per_epoch"] = max(1, round(steps / EPOCHS))
    return values


def _seconds_a_step(graph: TypedGraph, values: dict[str, Any]) -> float:
    settings = FactorSettings.model_validate(values)
    width, scores = settings.model.embedding_dim, settings.step_size() * scores_per_link(graph, settings)
    # Three products of scores and vectors; ten passes over the scores, and eight over all vectors.
    return 6 * scores * width / FLOP_A_SECOND + (10 * scores + 8 * graph.num_nodes * width) * 4 / BYTES_A_SECOND


def n3_of(links: int, nodes: int) -> float:
    """λ of the N3 norm: the more links determine the vectors, the less norm they need. ``links``: in both directions."""
    if links >= DENSE * nodes:
        return 0.02
    return 0.05 if links >= LARGE else 0.1
