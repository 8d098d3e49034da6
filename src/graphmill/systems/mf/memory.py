"""What a training of matrix factorisation holds in memory."""

from __future__ import annotations

from graphmill.graph.typed_graph import TypedGraph
from graphmill.systems.mf.settings import MfSettings
from graphmill.systems.recommenders.memory import evaluation_part, pairs_part, sizes_of
from graphmill.training.planning import Part, Setup


def memory_parts(graph: TypedGraph, settings: MfSettings, setup: Setup) -> list[Part]:
    """The parts of one process."""
    size, d = sizes_of(graph), settings.model.embedding_dim
    table = size.nodes * d
    return [
        Part("embeddings", "weights", table),
        # The view's rows in both orders; the sampler's pairs, order and keys.
        Part("interactions", "always", size.edges, 64),
        Part("gradients before they are added up", "kept", 2 * table),
        pairs_part(settings, d, setup),
        evaluation_part(2 * table),
    ]
