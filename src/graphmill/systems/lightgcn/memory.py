"""What a LightGCN training holds in memory."""

from __future__ import annotations

from graphmill.graph.typed_graph import TypedGraph
from graphmill.systems.lightgcn.settings import LightGcnSettings
from graphmill.systems.recommenders.memory import BYTES_PER_EDGE, evaluation_part, pairs_part, rows_of, sizes_of
from graphmill.training.planning import Part, Setup


def memory_parts(graph: TypedGraph, settings: LightGcnSettings, setup: Setup) -> list[Part]:
    """The parts of one process."""
    size, d = sizes_of(graph), settings.model.embedding_dim
    table = size.nodes * d
    return [
        Part("embeddings", "weights", table),
        Part("interactions and the user-item matrix", "always", size.edges, BYTES_PER_EDGE),
        # Vectors of two layers, the final vectors and their gradient.
        Part("vectors of the layers", "kept", 4 * table),
        pairs_part(settings, d, setup),
        Part("rows for the norm", "loss", rows_of(settings) * d * 2),
        evaluation_part(4 * table),
    ]
