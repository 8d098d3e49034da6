"""Explains predicted links by the edges and paths that carried their scores: HGT by its layers, a blend by its parts."""

from __future__ import annotations

from typing import Any

from torch import nn

from graphmill.errors import SettingsError
from graphmill.explain.blend import BlendExplainer
from graphmill.explain.explanation import ExplainSettings, LinkExplainer
from graphmill.explain.layers import LayersExplainer
from graphmill.explain.neighbours import NeighboursExplainer
from graphmill.systems.blend.system import BlendSystem
from graphmill.systems.hgt.system import HgtSystem
from graphmill.systems.neighbours.system import NeighboursSystem


def explainer_of(system: Any, model: nn.Module, settings: ExplainSettings | None = None) -> LinkExplainer:
    """The explainer of a restored run's links.

    Raises:
        SettingsError: the system's scores cannot be explained by edges.
    """
    if isinstance(system, BlendSystem):
        return BlendExplainer(system, model, settings)
    if isinstance(system, HgtSystem):
        return LayersExplainer(system, model, settings)
    if isinstance(system, NeighboursSystem):
        return NeighboursExplainer(system, model, settings)
    raise SettingsError(
        f"{system.name} scores links by its vectors alone, so no edge explains a score; blend, hgt, knn and spectral are "
        "explained by edges, conve by training triples (graphmill tracin)"
    )
