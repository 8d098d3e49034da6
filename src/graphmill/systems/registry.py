"""Which systems there are. Settings load without torch; a recipe is imported when it is built."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal

from graphmill.errors import SettingsError
from graphmill.settings import Settings, shown

if TYPE_CHECKING:
    import numpy as np

    from graphmill.graph.typed_graph import TypedGraph
    from graphmill.systems.hgt.softmax_scorer import SoftmaxScorer
    from graphmill.systems.link_export import ExportedScorer
    from graphmill.training.contract import Recipe


@dataclass(frozen=True)
class Entry:
    """Where one system's parts are (import paths), one line on it, and what is made of its runs.

    ``ranks``: what its held-out ranking is of: links by relation, triples on both sides, or items for users.
    ``recommends``: it has recommendations; ``traces``: its predictions can be traced to training triples. These are
    here, and not asked of the recipe, because Dagster's definitions are loaded without torch.
    """

    module: str
    settings: str
    recipe: str
    about: str
    ranks: Literal["links", "triples", "items"] = "links"
    recommends: bool = False
    traces: bool = False
    place: str = "recipe"
    """The module of the recipe within ``module``."""

    @property
    def predicts(self) -> bool:
        """Whether it predicts links: what ranks links or triples does."""
        return self.ranks != "items"


RECIPES = {
    "bpr_mf": Entry(
        "graphmill.systems.bpr_mf",
        "BprMfSettings",
        "BprMfRecipe",
        "BPR-MF: matrix factorisation for recommendation; a baseline of the others, and where they can start",
        ranks="items",
        recommends=True,
    ),
    "complex": Entry(
        "graphmill.systems.complex",
        "ComplexSettings",
        "ComplexRecipe",
        "ComplEx: vectors of nodes and relations whose products score links; DistMult as an option",
    ),
    "conve": Entry(
        "graphmill.systems.conve",
        "ConveSettings",
        "ConveRecipe",
        "ConvE: convolutional link prediction on triples",
        ranks="triples",
        traces=True,
    ),
    "dragon": Entry(
        "graphmill.systems.dragon",
        "DragonSettings",
        "DragonRecipe",
        "DRAGON: recommendation from modalities, with graphs of similar items and similar users",
        ranks="items",
        recommends=True,
    ),
    "hgt": Entry(
        "graphmill.systems.hgt",
        "HgtSettings",
        "recipe_of",
        "Heterogeneous Graph Transformer on a typed graph",
        place="choice",
    ),
    "kgat": Entry(
        "graphmill.systems.kgat",
        "KgatSettings",
        "KgatRecipe",
        "KGAT: recommendation on the collaborative knowledge graph, with attention",
        ranks="items",
        recommends=True,
    ),
    "lightgcn": Entry(
        "graphmill.systems.lightgcn",
        "LightGcnSettings",
        "LightGcnRecipe",
        "LightGCN: vectors of users and items, smoothed over the user-item graph",
        ranks="items",
        recommends=True,
    ),
    "mmgcn": Entry(
        "graphmill.systems.mmgcn",
        "MmgcnSettings",
        "MmgcnRecipe",
        "MMGCN: recommendation from modalities, a graph network each",
        ranks="items",
        recommends=True,
    ),
    "sasrec": Entry(
        "graphmill.systems.sequences",
        "SasrecSettings",
        "SequenceRecipe",
        "SASRec: next items from a user's sequence",
        ranks="items",
        recommends=True,
    ),
    "tisasrec": Entry(
        "graphmill.systems.sequences",
        "TisasrecSettings",
        "SequenceRecipe",
        "TiSASRec: next items, with time intervals",
        ranks="items",
        recommends=True,
    ),
}


def entry(name: str) -> Entry:
    """What is known of a recipe without importing it.

    Raises:
        SettingsError: there is no such recipe; the message lists those that there are.
    """
    if name not in RECIPES:
        raise SettingsError(f"recipe {shown(name)} is unknown (known: {', '.join(RECIPES)})")
    return RECIPES[name]


def settings_model(name: str) -> type[Settings]:
    """The settings model of a recipe.

    Raises:
        SettingsError: there is no such recipe; the message lists those that there are.
    """
    model: type[Settings] = getattr(import_module(f"{entry(name).module}.settings"), entry(name).settings)
    return model


def presets(name: str) -> dict[str, dict[str, Any]]:
    """The recipe's presets: name → the fields that it fills."""
    module = import_module(f"{entry(name).module}.settings")
    found: dict[str, dict[str, Any]] = getattr(module, "PRESETS", {"none": {}})
    return found


def choose_preset(name: str, device: str, memory_bytes: int, links: int = 0) -> tuple[str, str]:
    """What ``preset: auto`` stands for on this device, and why; ``links``: training edges of the graph, 0 where unknown.

    A device with little memory decides before the size of the graph does.
    """
    module = import_module(f"{entry(name).module}.settings")
    chosen = ("none", f"{memory_bytes / 2**30:.0f} GiB of memory for {device} need no preset")
    if hasattr(module, "choose_preset"):
        chosen = module.choose_preset(device, memory_bytes)
    if links and chosen[0] == "none" and hasattr(module, "preset_of_graph"):
        chosen = module.preset_of_graph(links) or chosen
    return chosen


def exported_scorer(name: str, arrays: Mapping[str, np.ndarray], vectors: np.ndarray) -> ExportedScorer | SoftmaxScorer:
    """What scores links from an export: its vectors float32 [nodes, d] and the arrays of its recipe's ``scoring``."""
    found: ExportedScorer | SoftmaxScorer = import_module(f"{entry(name).module}.exported").scorer_of(arrays, vectors)
    return found


def create(name: str, graph: TypedGraph, settings: Settings, batching: str) -> Recipe:
    """Build the recipe on a graph. Imports torch."""
    recipe: Recipe = getattr(import_module(f"{entry(name).module}.{entry(name).place}"), entry(name).recipe)(
        graph, settings, batching
    )
    return recipe
