"""Scores of links from a blend's export: its spectral vectors and the arrays of its other parts."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from graphmill.arrays import array_of
from graphmill.errors import InputError
from graphmill.evaluation.baselines.neighbours import NeighbourScorer, NeighbourSetting, rows_of_links, setting_of
from graphmill.graph.training_links import TrainingLinks
from graphmill.systems import registry
from graphmill.systems.blend.part import (
    FEATURES,
    POPULARITY,
    BlendScorer,
    FeatureSimilarity,
    Part,
    Popularity,
    Similarities,
    Trained,
)
from graphmill.systems.blend.paths import CHANNELS, Paths
from graphmill.systems.blend.trained import NBFNET, nbfnet_scorer

SPECTRAL, KNN, PATHS = "spectral", "knn", "paths"
TRIED = {SPECTRAL: (1.0, 0.0), KNN: (0.0, 0.5, 2.0)}
"""Multiples of a baseline's own weight that are tried beside other parts."""


def similarities(name: str, links: TrainingLinks, setting: NeighbourSetting, vectors: np.ndarray) -> Similarities:
    """The part of kNN, or of spectral ``vectors`` float32 [nodes, width]."""
    rows = rows_of_links(links, setting, vectors if name == SPECTRAL else None)
    return Similarities(NeighbourScorer(links, rows, setting), TRIED[name])


def scorer_of(arrays: Mapping[str, np.ndarray], vectors: np.ndarray) -> BlendScorer:
    """The scorer of an export, from its vectors float32 [nodes, width] and :meth:`BlendSystem.scoring`.

    Raises :class:`InputError` for arrays that are not those of a blend.
    """
    links = TrainingLinks.read(arrays, len(vectors))
    relations = len(links.outgoing)
    mix = {name: array_of(arrays, f"mix.{name}", (relations,), "f") for name in _names(arrays)}
    parts: dict[str, Part] = {POPULARITY: Popularity(links)}
    for name in list(mix)[1:]:
        if name in TRIED:
            setting = setting_of(array_of(arrays, f"{name}.setting", (5,), "f"))
            parts[name] = similarities(name, links, setting, np.ascontiguousarray(vectors, dtype=np.float32))
        elif name == PATHS:
            channels = array_of(arrays, "paths.channels", (relations, CHANNELS, 2), "i")
            paths = Paths(links, channels, array_of(arrays, "paths.weights", (relations, CHANNELS), "f"))
            paths.require_channels()
            parts[name] = paths
        elif name == FEATURES:
            parts[name] = FeatureSimilarity(links, array_of(arrays, "features.rows", (len(vectors), None), "f"))
        else:
            part = {key.removeprefix(f"{name}."): value for key, value in arrays.items() if key.startswith(f"{name}.")}
            if name == NBFNET:
                parts[name] = Trained(nbfnet_scorer(part, links))
            else:
                table = array_of(part, "vectors", (len(vectors), None), "f")
                parts[name] = Trained(registry.exported_scorer(name, part | links.arrays(), table))
    return BlendScorer(links, parts, np.stack(list(mix.values()), 1))


def _names(arrays: Mapping[str, np.ndarray]) -> list[str]:
    """The parts of an export, popularity first."""
    named = sorted(key.removeprefix("mix.") for key in arrays if key.startswith("mix."))
    known = [POPULARITY, SPECTRAL, KNN, PATHS, FEATURES, "complex", NBFNET]
    if POPULARITY not in named or not set(named) <= set(known):
        raise InputError(f"its parts are {', '.join(named) or 'none'}, and not those of a blend")
    return [name for name in known if name in named]
