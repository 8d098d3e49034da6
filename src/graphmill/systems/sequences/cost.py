"""Memory and operations of a SASRec or TiSASRec step, from the lengths of the sequences: the planner's formulas."""

from __future__ import annotations

import numpy as np

from graphmill.graph.typed_graph import TypedGraph
from graphmill.systems.sequences.next_item_losses import BLOCK_BYTES
from graphmill.systems.sequences.settings import SasrecSettings, TisasrecModel
from graphmill.training.contract import Execution
from graphmill.training.planning import Cost

_WIDE = 4
_ENCODED = 512  # histories encoded at a time in evaluation


def step_cost(graph: TypedGraph, settings: SasrecSettings, batching: str, execution: Execution, precision: str) -> Cost:
    """The cost of one process; ``batching`` is "full": a step has whole windows."""
    m, o = settings.model, settings.objective
    sequences = settings.step_size() / settings.acceleration.processes
    lengths, items, interactions = _windows(graph, m.max_length, o.windows)
    rows, attended = sequences * lengths.mean(), sequences * (lengths**2.0).mean()
    d, blocks, heads = m.embedding_dim, m.num_blocks, m.num_heads
    span = m.time_span if isinstance(m, TisasrecModel) else 0
    streams = m.mhc_streams if m.mhc != "none" else 1
    tables = (items + m.max_length * (2 if span else 1) + 2 * span) * d
    parameters = tables + blocks * (6 * d * d + 12 * d)
    # Stored per block and row: norms, q, k, v, attention, residuals, feed-forward's two products, masks.
    per_row = d * (15.0 + 6.0 * (streams - 1))
    # Attention weights, their dropout and mask per pair; their gradient in the backward pass of a bucket.
    per_pair = heads * (2.25 + (3.0 if span else 0.0))
    kept = rows * per_row + attended * per_pair
    states = (rows * d + kept) if execution.checkpointing else blocks * kept
    wide = rows * items
    loss = {
        "softmax": 0.25 * wide + 3 * rows * d,
        "sampled_softmax": 3 * rows * o.sampled_items,
    }.get(o.loss, 2 * rows * d + min(rows * d * (2 + 2 * o.negatives_per_positive), BLOCK_BYTES // 2))
    dense = 2.0 * rows * 6 * d * d * blocks + 4.0 * attended * d * blocks
    scored = wide if o.loss == "softmax" else rows * (o.sampled_items if o.loss == "sampled_softmax" else 0)
    # Memory traffic of eight numbers per score, fewer than its operations: a score stays in the cache between them.
    products = dense * (3 + execution.checkpointing) + 3 * 2.0 * scored * d
    return Cost(
        weights=int(parameters * _WIDE),
        held=interactions * 48,
        step=int((states + loss / max(execution.loss_chunks, 1) + 4 * rows * d) * _WIDE),
        gradients=int(parameters * _WIDE),
        evaluation=int(_ENCODED * (lengths.mean() * 8 * d + 4 * items) * _WIDE),
        flop=products,
        low_flop=products if precision != "fp32" else 0.0,
        moved=(blocks * (rows * per_row * 5 + attended * per_pair * 8) + scored * 8 + rows * d * 20) * _WIDE,
        calls=300.0 + 1200.0 * blocks,
        # The rows of steps with this many windows have a standard deviation of more than a hundredth of their mean.
        ragged=bool(sequences < len(lengths) and lengths.std() > 0.01 * lengths.mean() * sequences**0.5),
    )


def _windows(graph: TypedGraph, longest: int, which: str) -> tuple[np.ndarray, int, int]:
    """Lengths of the training windows, the number of items, and the number of interactions."""
    relation = max(graph.relations, key=lambda r: r.edges)
    edges = graph.edges(relation.index)
    train = np.asarray(edges.src)[np.asarray(edges.split) == 0]
    lengths = np.bincount(train)
    windows = lengths[lengths > 1] - 1
    if which == "last":
        windows = np.minimum(windows, longest)
    else:
        full, rest = windows // longest, windows % longest
        windows = np.concatenate([np.full(int(full.sum()), longest), rest[rest > 0]])
    return windows.astype(float) if len(windows) else np.ones(1), graph.node_type(relation.target).count, len(train)
