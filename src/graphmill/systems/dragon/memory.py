"""What a DRAGON training holds in memory."""

from __future__ import annotations

from graphmill.graph.typed_graph import TypedGraph
from graphmill.systems.dragon.settings import DragonSettings
from graphmill.systems.recommenders.memory import BYTES_PER_EDGE, evaluation_part, pairs_part, rows_of, sizes_of
from graphmill.training.planning import Part, Setup

_HIDDEN = 4  # times the embedding's width
_NEAREST = 130 << 20  # numbers held by the search for the nearest items: blocks of similarities and their order


def memory_parts(graph: TypedGraph, settings: DragonSettings, setup: Setup) -> list[Part]:
    """The parts of one process."""
    m, size, d = settings.model, sizes_of(graph, settings.model.modalities), settings.model.embedding_dim
    users, items, sets, hidden = size.users, size.items, len(size.widths), _HIDDEN * settings.model.embedding_dim
    width = d * sets
    mapping = sum((f + 1) * hidden + (hidden + 1) * d for f in size.widths)
    by_id = size.nodes * m.identity_dim
    links = items * m.item_neighbours * sets * bool(m.item_layers) + users * m.user_neighbours
    rows = rows_of(settings)
    # Normalised and concatenated, propagated, weighted.
    states = size.nodes * sets * d * 4
    vectors = size.nodes * (sets * d * 3 + width * (3 if m.identity_dim else 2)) + 2 * by_id
    return [
        Part("embeddings and mapping of the features", "weights", sets * users * (d + 1) + mapping + by_id),
        Part("features", "always", sum(items * f for f in size.widths)),
        Part("interactions and the user-item matrix", "always", size.edges, BYTES_PER_EDGE),
        Part("graphs of alike items and users", "always", links, 48),
        Part("states of the graph", "kept", states + items * 2 * hidden, recomputed=states + items * hidden),
        pairs_part(settings, width + m.identity_dim, setup),
        # The homogeneous graphs' rows that the pairs name, with their vectors.
        Part("rows of the graphs of alike items and users", "loss", min(rows, size.nodes) * 2 * width + 24 * links),
        evaluation_part(vectors),
        # Before the first step; it takes about as much memory as an evaluation.
        Part("search for alike items", "evaluation", _NEAREST * bool(m.item_layers and items > 2048)),
    ]
