"""Which parts a blend has, and what it holds in memory."""

from __future__ import annotations

from dataclasses import replace

from graphmill.graph.typed_graph import TypedGraph
from graphmill.systems.blend.complex_part import complex_values
from graphmill.systems.blend.nbfnet_part import NBFNET, is_default_part, nbfnet_values
from graphmill.systems.blend.settings import PARTS, BlendModel, BlendSettings
from graphmill.systems.factor.memory import memory_parts as complex_parts
from graphmill.systems.factor.settings import FactorSettings
from graphmill.systems.nbfnet.memory import memory_parts as nbfnet_parts
from graphmill.systems.nbfnet.settings import NbfnetSettings
from graphmill.systems.neighbours.memory import NEIGHBOURHOODS
from graphmill.systems.neighbours.memory import memory_parts as neighbours_parts
from graphmill.systems.neighbours.settings import KnnSettings, SpectralModel, SpectralSettings
from graphmill.training.planning import Part, Setup, ranking_part


def chosen_parts(graph: TypedGraph, model: BlendModel) -> list[str]:
    """The parts beside popularity: those of the settings, or all that suit the graph. Features are left out where it has
    none."""
    wanted = model.parts or [name for name in PARTS if name != NBFNET or is_default_part(graph)]
    return [name for name in wanted if name != "features" or any(graph.feature_sets(t.name) for t in graph.node_types)]


def memory_parts(graph: TypedGraph, settings: BlendSettings, setup: Setup) -> list[Part]:
    """The parts of one process."""
    wanted = chosen_parts(graph, settings.model)
    width = SpectralModel(embedding_dim=settings.model.embedding_dim)
    spectral = neighbours_parts(graph, SpectralSettings(model=width), setup)
    # Sparse neighbourhoods, steps of paths and, while their weights are fitted, a second copy of the edges.
    compared = [p for p in neighbours_parts(graph, KnnSettings(), setup) if p.name == NEIGHBOURHOODS]
    widths = [sum(rows.shape[1] for n in graph.feature_sets(t.name) if (rows := graph.features(t.name, n)) is not None)
              for t in graph.node_types]  # fmt: skip
    trained, remedy = [], "name model.parts, without {}"
    if "complex" in wanted:
        factors = FactorSettings.model_validate(complex_values(graph, 0, "cpu"))
        held = [p for p in complex_parts(graph, factors, setup) if p.when != "evaluation"]
        trained += [replace(part, remedy=remedy.format("complex")) for part in held]
    if NBFNET in wanted:
        network = NbfnetSettings.model_validate(nbfnet_values(graph, 0, "cpu"))
        held = [p for p in nbfnet_parts(graph, network, setup) if p.name != ranking_part(0, 0).name]
        trained += [replace(part, name=f"NBFNet: {part.name}", remedy=remedy.format(NBFNET)) for part in held]
    return [
        *spectral,
        *(compared if {"knn", "paths"} & set(wanted) else []),
        Part("features of nodes", "evaluation", 2 * graph.num_nodes * max(widths) * ("features" in wanted)),
        *trained,
    ]
