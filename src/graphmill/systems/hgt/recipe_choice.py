"""Chooses the recipe that HGT's settings ask for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphmill.systems.hgt.recipe import HgtRecipe
from graphmill.systems.hgt.settings import HgtSettings
from graphmill.systems.hgt.softmax import HgtSoftmaxRecipe

if TYPE_CHECKING:
    from graphmill.graph.typed_graph import TypedGraph


def recipe_of(graph: TypedGraph, settings: HgtSettings, batching: str) -> HgtRecipe:
    """The recipe for ``objective.loss``."""
    return (HgtSoftmaxRecipe if settings.objective.loss == "softmax" else HgtRecipe)(graph, settings, batching)
