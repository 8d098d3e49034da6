"""Which parts a blend has, and what it holds in memory."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from graphmill.graph.similar_neighbours import BLOCK_BYTES
from graphmill.graph.typed_graph import TypedGraph
from graphmill.systems.blend.complex_part import complex_values
from graphmill.systems.blend.features import has_features
from graphmill.systems.blend.nbfnet_part import MINUTES, NBFNET, nbfnet_minutes, nbfnet_values
from graphmill.systems.blend.settings import PARTS, BlendModel, BlendSettings
from graphmill.systems.factor.memory import memory_parts as complex_parts
from graphmill.systems.factor.settings import FactorSettings
from graphmill.systems.nbfnet.memory import memory_parts as nbfnet_parts
from graphmill.systems.nbfnet.settings import NbfnetSettings
from graphmill.training.planning import Part, Setup, ranking_part


def chosen_parts(graph: TypedGraph, model: BlendModel) -> list[str]:
    """The parts beside popularity: those of the settings, or all that suit the graph. Features are left out where it has
    none."""
    wanted = model.parts or [name for name in PARTS if name != NBFNET or nbfnet_minutes(graph) <= MINUTES]
    return [name for name in wanted if name != "features" or has_features(graph)]


def memory_parts(graph: TypedGraph, settings: BlendSettings, setup: Setup) -> list[Part]:
    """The parts of one process."""
    nodes, width, wanted = graph.num_nodes, settings.model.embedding_dim, chosen_parts(graph, settings.model)
    edges, largest = sum(r.edges for r in graph.relations), max(t.count for t in graph.node_types)
    # One column for each neighbour in each relation. While the table is made, the two sides of the randomized SVD take
    # as much again as table and columns.
    columns = float(sum(np.count_nonzero(np.diff(graph.edges(r.index).indptr)) for r in graph.relations))
    compared = 50 * edges + 3 * min(BLOCK_BYTES, 12_000 * largest)
    held_out = max((float(np.count_nonzero(graph.edges(r.index).split)) for r in graph.relations), default=0.0)
    widths = [sum(rows.shape[1] for n in graph.feature_sets(t.name) if (rows := graph.features(t.name, n)) is not None)
              for t in graph.node_types]  # fmt: skip
    trained = []
    if "complex" in wanted:
        own = FactorSettings.model_validate(complex_values(graph, 0, "cpu"))
        held = [p for p in complex_parts(graph, own, setup) if p.when != "evaluation"]
        trained += [replace(part, remedy="leave complex out of model.parts") for part in held]
    if NBFNET in wanted:
        network = NbfnetSettings.model_validate(nbfnet_values(graph, 0, "cpu"))
        held = [p for p in nbfnet_parts(graph, network, setup) if p.name != ranking_part(0, 0).name]
        remedy = "leave nbfnet out of model.parts"
        trained += [replace(part, name=f"NBFNet: {part.name}", remedy=remedy) for part in held]
    return [
        Part("spectral vectors", "always", (2 * columns + 4 * nodes) * width),
        Part("edges from both ends", "always", edges, 48),
        Part("sums of a relation's neighbours", "evaluation", (nodes + 2 * largest) * 2 * width),
        # Sparse neighbourhoods, steps of paths and, while their weights are fitted, a second copy of the edges.
        Part("neighbourhoods and paths", "evaluation", compared * (len({"knn", "paths"} & set(wanted)) > 0), 1),
        Part("features of nodes", "evaluation", 2 * nodes * max(widths) * ("features" in wanted)),
        *trained,
        ranking_part(held_out, largest),
    ]
