"""Memory and operations of an MMGCN step, from the sizes of the graph and its features: the planner's formulas."""

from __future__ import annotations

from graphmill.graph.typed_graph import TypedGraph
from graphmill.systems.mmgcn.settings import MmgcnSettings, latent_dims
from graphmill.systems.recommenders.multimodal_sizes import SCORES, WIDE, pairs_in_place, pairs_kept, sizes_of
from graphmill.training.contract import Execution
from graphmill.training.planning import Cost


def step_cost(graph: TypedGraph, settings: MmgcnSettings, batching: str, execution: Execution, precision: str) -> Cost:
    """The cost of one process; ``batching`` is "full": a step runs over the whole graph."""
    m, size = settings.model, sizes_of(graph, settings.model.modalities)
    users, items, edges, d = size.users, size.items, size.edges, m.embedding_dim
    nodes, few = users + items, min(users, items)
    latent = latent_dims(m.latent_dims, len(size.widths), d)
    joined = 2 if m.combination == "concatenate" else 1
    tables = nodes * d
    weights = kept = inputs = constants = dense = moved = 0.0
    widest = 0
    for features, mapped in zip(size.widths, latent, strict=True):
        width = mapped or features
        widest = max(widest, width)
        tables += users * width
        weights += (features + 1) * mapped
        # Items are constant if their features are not mapped.
        kept += users * width + (items * width if mapped else 0)
        constants += items * features + (0 if mapped else users * width)
        constants += 0 if m.trainable_embeddings else nodes * width
        dense += 2.0 * items * features * mapped
        for number, own in enumerate([width] + [d] * (m.num_layers - 1)):
            both = own + d if joined == 2 else own
            weights += own * own + (own + 1) * d + (both + 1) * d
            # Messages; the node's own part with ID embeddings; their combination; the product on the smaller side.
            kept += nodes * (own + 3 * d)
            inputs += nodes * own
            dense += 2.0 * (2 * few * own * own + nodes * (own + both) * d)
            moved += (0 if number == 0 and not mapped else 4.0) * edges * own + nodes * (6.0 * own + 12.0 * d)
    trained = weights + (tables if m.trainable_embeddings else 0)
    rows = settings.step_size() / settings.acceleration.processes
    in_place = pairs_in_place(settings, precision)
    chunk = rows / max(execution.micro_batches, 1)
    loss = pairs_kept(chunk, settings.objective.negatives_per_positive, d, in_place)
    if m.trainable_embeddings and settings.objective.regularisation > 0:  # the ID table's rows for the norm, each once
        loss += min(chunk * (2 + settings.objective.negatives_per_positive), nodes) * d * 3
    layer = nodes * (2.0 * widest + 4 * d)
    # In the backward pass of a layer, gradients of its messages, rows and products are in memory beside the stored
    # values.
    states = (inputs + 4 * layer) if execution.checkpointing else kept + 3 * layer
    products = dense * (3 + execution.checkpointing)
    return Cost(
        weights=int(trained * WIDE),
        held=int((constants + (0 if m.trainable_embeddings else tables)) * WIDE + edges * size.bytes_per_edge),
        step=int((states + loss + 2 * nodes * d) * WIDE),
        gradients=int(trained * WIDE),
        evaluation=int((layer + 2 * nodes * d + SCORES) * WIDE),
        flop=products,
        low_flop=products if precision != "fp32" else 0.0,
        moved=(moved * 2 + rows * d * 12) * WIDE,
        calls=200.0 + 120.0 * len(size.widths) * m.num_layers,
    )
