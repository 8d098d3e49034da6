"""Explains predicted links by the edges and paths that carried their scores: each system whose entry ``explains``."""

from __future__ import annotations

from typing import Any

from torch import nn

from graphmill.errors import SettingsError
from graphmill.explain.blend import BlendExplainer, NeighboursExplainer
from graphmill.explain.explanation import ExplainSettings, LinkExplainer
from graphmill.explain.layers import LayersExplainer
from graphmill.explain.propagation import PropagationExplainer
from graphmill.systems.registry import names_with

EXPLAINERS: dict[str, type[LinkExplainer]] = {
    "blend": BlendExplainer,
    "hgt": LayersExplainer,
    "knn": NeighboursExplainer,
    "nbfnet": PropagationExplainer,
    "spectral": NeighboursExplainer,
}
"""System → the class that explains its links."""


def explainer_of(system: Any, model: nn.Module, settings: ExplainSettings | None = None) -> LinkExplainer:
    """The explainer of a restored run's links.

    Raises:
        SettingsError: the system's scores cannot be explained by edges.
    """
    if system.name not in EXPLAINERS:
        raise SettingsError(
            f"{system.name} scores links by its vectors alone, so no edge explains a score; {names_with('explains')} are "
            f"explained by edges, {names_with('traces')} by training triples (graphmill tracin)"
        )
    return EXPLAINERS[system.name](system, model, settings)
