"""What a ConvE training holds in memory."""

from __future__ import annotations

import numpy as np

from graphmill.graph.typed_graph import TypedGraph
from graphmill.kernels.devices import part_bytes
from graphmill.kernels.full_softmax import BLOCK_BYTES
from graphmill.systems.conve.settings import ConveSettings
from graphmill.training.planning import Part, Setup, ranking_part


def memory_parts(graph: TypedGraph, settings: ConveSettings, setup: Setup) -> list[Part]:
    """The parts of one process."""
    m, o, entities, d = settings.model, settings.objective, graph.num_nodes, settings.model.embedding_dim
    batch = settings.step_size() // settings.acceleration.processes
    height, width = 2 * m.shape[0] - m.kernel_height + 1, m.shape[1] - m.kernel_width + 1
    maps = m.output_channels * height * width
    table = entities * (d + 1)
    kernels = m.output_channels * (m.kernel_height * m.kernel_width + 3) + 3 * d + 2
    held_out = float(sum(np.count_nonzero(graph.edges(r.index).split) for r in graph.relations))
    block = part_bytes(setup.device, BLOCK_BYTES)
    # Scores of a block, what the loss makes of them and the products' copies.
    scores = Part("scores of a block of queries", "loss", 4 * batch * entities, at_most=max(block, 64 * entities))
    if o.negatives == "sampled":
        scores = Part("vectors of the negatives", "loss", 4 * batch * (1 + o.negatives_per_positive) * d)
    return [
        Part(
            "embeddings, convolution and projection",
            "weights",
            table + 2 * len(graph.relations) * d + maps * d + kernels,
        ),
        Part("triples", "always", 2 * sum(r.edges for r in graph.relations), 40),
        # The maps, which their gradient overwrites, and the windows that they are made of.
        Part("feature maps", "kept", 2 * batch * maps),
        Part("gradient of the embeddings while it is added up", "kept", table),
        scores,
        ranking_part(held_out, entities),
        Part("vectors of an evaluation", "evaluation", 2 * table),
    ]
