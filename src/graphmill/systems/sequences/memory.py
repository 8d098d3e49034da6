"""What a SASRec or TiSASRec training holds in memory, from the lengths of the sequences."""

from __future__ import annotations

import numpy as np

from graphmill.graph.typed_graph import TypedGraph
from graphmill.systems.sequences.hyper_connections import STREAMS
from graphmill.systems.sequences.settings import SasrecSettings, TisasrecModel
from graphmill.training.planning import Part, Setup

_ENCODED = 512  # histories encoded at a time in evaluation
_REMEDY = "lower acceleration.batch_size, model.max_length or model.embedding_dim"


def memory_parts(graph: TypedGraph, settings: SasrecSettings, setup: Setup) -> list[Part]:
    """The parts of one process."""
    m, o, d, blocks = settings.model, settings.objective, settings.model.embedding_dim, settings.model.num_blocks
    sequences = settings.step_size() / settings.acceleration.processes
    lengths, items, interactions = _windows(graph, m.max_length, o.windows)
    rows, attended = sequences * lengths.mean(), sequences * (lengths**2.0).mean()
    span = m.time_span if isinstance(m, TisasrecModel) else 0
    streams = STREAMS if m.mhc != "none" else 1
    tables = (items + m.max_length * (2 if span else 1) + 2 * span) * d
    # Per block and row: norms, q, k, v, attention, residuals, feed-forward's two products, masks. Per block, pair of rows
    # and head: attention weights, their dropout and mask; with times, what is added to them.
    mask = 1.0 if setup.on_cpu else 0.25  # numbers: on a CPU torch keeps factors
    kept = rows * d * (14.5 + 2 * mask + 6 * (streams - 1)) + attended * m.num_heads * ((5 if span else 2) + mask)
    scores = {"softmax": 0.25 * rows * items + 3 * rows * d, "sampled_softmax": 3.0 * rows * o.drawn}
    pairs = 2 * rows * d * (2 + o.drawn)
    # The rows of steps with this many windows have a standard deviation of more than a hundredth of their mean.
    uneven = bool(sequences < len(lengths) and lengths.std() > 0.01 * lengths.mean() * sequences**0.5)
    return [
        Part("embeddings and blocks", "weights", tables + blocks * (6 * d * d + 12 * d)),
        Part("interactions", "always", interactions, 48),
        Part("states of the blocks", "kept", blocks * kept, recomputed=rows * d + kept, uneven=uneven, remedy=_REMEDY),
        Part("states of the sequences and their gradients", "kept", 4 * rows * d, uneven=uneven, remedy=_REMEDY),
        Part("scores of the loss", "loss", scores.get(o.loss, pairs), uneven=uneven, remedy=_REMEDY),
        Part("states and scores of an evaluation", "evaluation", _ENCODED * (lengths.mean() * 8 * d + 4 * items)),
    ]


def _windows(graph: TypedGraph, longest: int, which: str) -> tuple[np.ndarray, int, int]:
    """Lengths of the training windows, the number of items, and the number of interactions."""
    relation = max(graph.relations, key=lambda r: r.edges)
    edges = graph.edges(relation.index)
    train = np.asarray(edges.src)[np.asarray(edges.split) == 0]
    windows = np.bincount(train) - 1
    windows = windows[windows > 0]
    if which == "last":
        windows = np.minimum(windows, longest)
    else:
        full, rest = windows // longest, windows % longest
        windows = np.concatenate([np.full(int(full.sum()), longest), rest[rest > 0]])
    return windows.astype(float) if len(windows) else np.ones(1), graph.node_type(relation.target).count, len(train)
