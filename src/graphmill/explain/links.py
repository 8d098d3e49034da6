"""Explains predicted links by the edges and paths that carried their scores: HGT by its layers, a blend by its parts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from torch import nn

from graphmill.errors import SettingsError
from graphmill.explain.blend import BlendExplainer
from graphmill.explain.explanation import ExplainSettings, Explanation, LinkExplainer
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


def explain_links(
    system: Any,
    model: nn.Module,
    relation: int,
    heads: Sequence[int] | np.ndarray,
    tails: Sequence[int] | np.ndarray,
    settings: ExplainSettings | None = None,
) -> list[Explanation]:
    """Explain links of one relation, such as the top rows of a table of predictions.

    ``system`` and ``model``: from a restored run. ``relation``: its index. ``heads`` and ``tails``: n rows of the node
    table each.

    Raises:
        SettingsError: the system's scores cannot be explained by edges.
    """
    explainer = explainer_of(system, model, settings)
    result = [explainer.explain(relation, int(h), int(t)) for h, t in zip(heads, tails, strict=True)]
    return explainer.named(result)
