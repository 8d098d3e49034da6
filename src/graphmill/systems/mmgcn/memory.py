"""What an MMGCN training holds in memory."""

from __future__ import annotations

from graphmill.graph.typed_graph import TypedGraph
from graphmill.systems.mmgcn.settings import MmgcnSettings, latent_dims
from graphmill.systems.recommenders.memory import BYTES_PER_EDGE, evaluation_part, pairs_part, rows_of, sizes_of
from graphmill.training.planning import Part, Setup


def memory_parts(graph: TypedGraph, settings: MmgcnSettings, setup: Setup) -> list[Part]:
    """The parts of one process."""
    m, size, d = settings.model, sizes_of(graph, settings.model.modalities), settings.model.embedding_dim
    nodes, joined = size.nodes, m.combination == "concatenate"
    tables, weights, states, inputs, constants = float(nodes * d), 0, 0, 0, 0
    widest = 0
    for features, mapped in zip(size.widths, latent_dims(m.latent_dims, len(size.widths), d), strict=True):
        width = mapped or features
        widest = max(widest, width)
        tables += size.users * width
        weights += (features + 1) * mapped
        constants += size.items * features
        states += nodes * width
        for input_dim in [width] + [d] * (m.num_layers - 1):
            weights += input_dim * input_dim + (input_dim + 1) * d + (input_dim + d * joined + 1) * d
            # Messages; the node's own part with ID embeddings; their combination.
            states += nodes * (input_dim + 3 * d)
            inputs += nodes * input_dim
    trained = m.trainable_embeddings
    layer = nodes * (2 * widest + 4 * d)
    norm = min(rows_of(settings), nodes) * d * 3 * (trained and settings.objective.regularisation > 0)
    return [
        Part("embeddings and layers", "weights", weights + tables * trained),
        Part("features", "always", constants + tables * (not trained)),
        Part("interactions and the user-item matrix", "always", size.edges, BYTES_PER_EDGE),
        # In the backward pass of a layer, gradients of its messages, rows and products are in memory beside the states.
        Part("states of the layers", "kept", states + 3 * layer, recomputed=inputs + 4 * layer),
        Part("final vectors and their gradient", "kept", 2 * nodes * d),
        pairs_part(settings, d, setup),
        Part("rows for the norm", "loss", norm),
        evaluation_part(layer + 2 * nodes * d),
    ]
