"""What spectral vectors and kNN hold in memory."""

from __future__ import annotations

import numpy as np

from graphmill.graph.typed_graph import TypedGraph
from graphmill.graph.typed_paths import BLOCK_BYTES
from graphmill.systems.neighbours.settings import KnnSettings, SpectralSettings
from graphmill.training.planning import Part, Setup, ranking_part

NEIGHBOURHOODS = "neighbourhoods"
"""The name of a part."""


def memory_parts(graph: TypedGraph, settings: SpectralSettings | KnnSettings, setup: Setup) -> list[Part]:
    """The parts of one process."""
    edges, largest = sum(r.edges for r in graph.relations), max(t.count for t in graph.node_types)
    held_out = max((float(np.count_nonzero(graph.edges(r.index).split)) for r in graph.relations), default=0.0)
    parts = [Part("edges from both ends", "always", edges, 48), ranking_part(held_out, largest)]
    if isinstance(settings, KnnSettings):
        # Sparse neighbourhoods, and blocks of their products.
        compared = 50 * edges + 3 * min(BLOCK_BYTES, 12_000 * largest)
        return [*parts, Part(NEIGHBOURHOODS, "evaluation", compared, 1)]
    # One column for each neighbour in each relation. While the table is made, the two sides of the randomized SVD take
    # as much again as table and columns.
    columns = float(sum(np.count_nonzero(np.diff(graph.edges(r.index).indptr)) for r in graph.relations))
    # Vectors with weights, or confidences, are computed beside those without.
    nodes = 4 + bool({"weight.npy", "confidence.npy"} & graph.manifest["files"].keys())
    width, remedy = settings.model.embedding_dim, "reduce model.embedding_dim"
    return [
        *parts,
        Part("spectral vectors", "always", (2 * columns + nodes * graph.num_nodes) * width, remedy=remedy),
        Part(
            "sums of a relation's neighbours", "evaluation", (graph.num_nodes + 2 * largest) * 2 * width, remedy=remedy
        ),
    ]
