"""What is known of each system by its name. Importing it does not import torch."""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

from graphmill.errors import SettingsError
from graphmill.settings import Settings, abbreviated
from graphmill.systems.auto import AUTO
from graphmill.systems.base import SMALL_GRAPH
from graphmill.systems.entry import SYSTEMS as SYSTEMS
from graphmill.systems.entry import Entry

if TYPE_CHECKING:
    import numpy as np

    from graphmill.graph.typed_graph import TypedGraph
    from graphmill.systems.base import SystemSettings
    from graphmill.systems.blend.part import BlendScorer
    from graphmill.systems.link_export import ExportedScorer
    from graphmill.training.contract import System


DEFAULT = "blend"
"""The system of settings, and of ``graphmill.train``, that name none."""


def called(name: str) -> str:
    """The name of a system as it is registered, for a name in any case (``HGT``) and with blanks or hyphens; any other
    text as it is."""
    plain = {each.lower().replace("_", ""): each for each in (*SYSTEMS, AUTO)}
    return name if name in SYSTEMS else plain.get(re.sub(r"[\s_-]", "", name.lower()), name)


def entry(name: str) -> Entry:
    """The entry of a system, without importing the system.

    Raises:
        SettingsError: there is no such system; the message lists the existing systems.
    """
    if name == AUTO:
        raise SettingsError(f"system: auto is for trainings; name a system here (known: {', '.join(SYSTEMS)})")
    if name not in SYSTEMS:
        raise SettingsError(f"system {abbreviated(name)} is unknown (known: {', '.join(SYSTEMS)})")
    return SYSTEMS[name]


def names_with(ability: str) -> str:
    """The systems whose entry has ``ability``, for a sentence: "a, b and c"."""
    able = sorted(name for name, each in SYSTEMS.items() if getattr(each, ability))
    return " and ".join([", ".join(able[:-1]), able[-1]] if len(able) > 1 else able)


def require_folds_in(name: str) -> None:
    """Raise :class:`SettingsError` for a system that cannot embed only."""
    if not entry(name).folds_in:
        able = names_with("folds_in")
        raise SettingsError(f"embed only: {name} cannot fold in new nodes without a training; those that can: {able}")


def settings_model(name: str) -> type[SystemSettings]:
    """The settings model of a system.

    Raises:
        SettingsError: there is no such system; the message lists the existing systems.
    """
    return getattr(import_module(f"{entry(name).module}.settings"), entry(name).settings)


def presets(name: str) -> dict[str, dict[str, Any]]:
    """The system's presets: name → the fields that it fills."""
    return dict(getattr(import_module(f"{entry(name).module}.settings"), "PRESETS", {"none": {}}))


def tries(name: str) -> tuple[dict[str, Any], ...]:
    """Other settings than the defaults that a choice of a system tries, by section, since no default suits all data."""
    return tuple(getattr(import_module(f"{entry(name).module}.settings"), "TRIES", {}).get(name, ()))


def choose_preset(name: str, device: str, memory_bytes: int, links: int = 0) -> tuple[str, str]:
    """The preset that ``preset: auto`` chooses for this device, and the reason; ``links``: training edges of the graph,
    0 if unknown.

    Little device memory takes precedence over the size of the graph.
    """
    known, gib = presets(name), memory_bytes / 2**30
    if gib < 2 and "low_memory" in known:
        return "low_memory", f"{gib:.1f} GiB of memory for {device}"
    if 0 < links <= SMALL_GRAPH and "small_graph" in known:
        return "small_graph", f"{links:,} training links, at most {SMALL_GRAPH:,}"
    return "none", f"{gib:.0f} GiB of memory for {device} is enough"


def exported_scorer(name: str, arrays: Mapping[str, np.ndarray], vectors: np.ndarray) -> ExportedScorer | BlendScorer:
    """The scorer of links from an export: its vectors float32 [nodes, d] and the arrays of its system's ``scoring``."""
    return system_module(name).scorer_of(arrays, vectors)


def system_module(name: str) -> Any:
    """The module that has the system's class and ``memory_parts``, the parts of its trainings' memory. Imports torch."""
    return import_module(f"{entry(name).module}.system")


def create(name: str, graph: TypedGraph, settings: Settings, batching: str) -> System:
    """Builds the system for a graph. Imports torch."""
    return getattr(system_module(name), entry(name).system)(graph, settings, batching)
