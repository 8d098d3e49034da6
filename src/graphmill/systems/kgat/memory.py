"""What a KGAT training holds in memory. Both phases hold the same, but for the layers' states in the interaction phase."""

from __future__ import annotations

from itertools import pairwise

from graphmill.graph.interactions import knowledge_view
from graphmill.graph.typed_graph import TypedGraph
from graphmill.systems.kgat.graph import TOGETHER
from graphmill.systems.kgat.settings import KgatSettings
from graphmill.systems.recommenders.memory import evaluation_part, pairs_part, sizes_of
from graphmill.training.planning import Part, Setup

_BYTES_PER_EDGE = 190
"""Ends and relation, the matrix in both orders with and without attention, edges by relation, keys, the buffer."""
_BYTES_TO_MASK = 24
"""Keys, places in the transpose, and the step's weights in both orders."""


def memory_parts(graph: TypedGraph, settings: KgatSettings, setup: Setup) -> list[Part]:
    """The parts of one process."""
    m, o, d, k, nodes = (
        settings.model,
        settings.objective,
        settings.model.embedding_dim,
        settings.model.embedding_dim,
        graph.num_nodes,
    )
    knowledge = knowledge_view(graph)
    relations, edges = 2 + 2 * len(knowledge.names), 2 * (sizes_of(graph).edges + len(knowledge))
    dims = [d, *m.layer_dims]
    wide, both = 2 if m.aggregation == "graphsage" else 1, m.aggregation == "bi_interaction"
    layers = sum((wide * a + 1) * b + both * (a + 1) * b for a, b in pairwise(dims))
    # The nodes that a step looks up: on every process those of the whole batch. The last layer computes only these.
    looked_up = min(settings.step_size() * (2 + o.negatives_per_positive), nodes)
    states = 0.0
    for place, (a, b) in enumerate(pairwise(dims), 1):
        # The products' inputs, each result before and after its ReLU, the dropout's mask, messages.
        rows = looked_up if setup.on_cpu and place == len(m.layer_dims) else nodes
        states += rows * ((wide + 1 + both) * a + (4 + 2 * both) * b)
    layer = nodes * max(a + b for a, b in pairwise(dims))
    # Before the vectors of an evaluation, the attention: projected heads and tails and what translates them, for one
    # relation or a group, and logits.
    evaluated = max(nodes * 3 * sum(dims), 2 * max(2 * nodes, TOGETHER) * (d + k)) + 3 * edges
    return [
        Part("embeddings and layers", "weights", nodes * d + layers + relations * (k + d * k)),
        Part("edges and attention", "always", edges, _BYTES_PER_EDGE + _BYTES_TO_MASK * o.mask_pairs),
        # The second phase's optimizer has moments of the vectors, too.
        Part("moments of the knowledge phase", "always", 2 * nodes * d),
        Part("states of the layers", "kept", states + layer, recomputed=nodes * sum(dims[:-1]) + layer),
        # Of what is looked up: each state, its gradient, the vector that is scaled, and the vector's gradient.
        Part("rows that a step looks up", "kept", looked_up * sum(dims) * 4),
        Part("gradients before they are added up", "kept", 3 * nodes * d),
        pairs_part(settings, sum(dims), setup),
        evaluation_part(evaluated),
    ]
