"""Which systems there are. Settings load without torch; a recipe is imported when it is built."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from graphmill.errors import SettingsError
from graphmill.settings import Settings

if TYPE_CHECKING:
    from graphmill.graph.typed_graph import TypedGraph
    from graphmill.training.contract import Recipe


@dataclass(frozen=True)
class Entry:
    """Where one system's parts are (import paths), and one line on it."""

    module: str
    settings: str
    recipe: str
    about: str


RECIPES = {
    "conve": Entry(
        "graphmill.recipes.conve", "ConveSettings", "ConveRecipe", "ConvE: convolutional link prediction on triples"
    ),
    "hgt": Entry(
        "graphmill.recipes.hgt", "HgtSettings", "HgtRecipe", "Heterogeneous Graph Transformer on a typed graph"
    ),
    "sasrec": Entry(
        "graphmill.recipes.sequences", "SasrecSettings", "SequenceRecipe", "SASRec: next items from a user's sequence"
    ),
    "tisasrec": Entry(
        "graphmill.recipes.sequences", "TisasrecSettings", "SequenceRecipe", "TiSASRec: next items, with time intervals"
    ),
}


def settings_model(name: str) -> type[Settings]:
    """The settings model of a recipe.

    Raises:
        SettingsError: there is no such recipe; the message lists those that there are.
    """
    model: type[Settings] = getattr(import_module(f"{_entry(name).module}.settings"), _entry(name).settings)
    return model


def presets(name: str) -> dict[str, dict[str, Any]]:
    """The recipe's presets: name → the fields that it fills."""
    found: dict[str, dict[str, Any]] = import_module(f"{_entry(name).module}.settings").PRESETS
    return found


def choose_preset(name: str, device: str, memory_bytes: int) -> tuple[str, str]:
    """What ``preset: auto`` stands for on this device, and why."""
    chosen: tuple[str, str] = import_module(f"{_entry(name).module}.settings").choose_preset(device, memory_bytes)
    return chosen


def create(name: str, graph: TypedGraph, settings: Settings, batching: str) -> Recipe:
    """Build the recipe on a graph. Imports torch."""
    recipe: Recipe = getattr(import_module(f"{_entry(name).module}.recipe"), _entry(name).recipe)(
        graph, settings, batching
    )
    return recipe


def _entry(name: str) -> Entry:
    if name not in RECIPES:
        raise SettingsError(f"recipe '{name}' is unknown (known: {', '.join(RECIPES)})")
    return RECIPES[name]
