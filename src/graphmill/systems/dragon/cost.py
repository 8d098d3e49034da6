"""Memory and operations of a DRAGON step, from the sizes of the graph and its features: the planner's formulas."""

from __future__ import annotations

from graphmill.graph.typed_graph import TypedGraph
from graphmill.systems.dragon.model import NUM_LAYERS
from graphmill.systems.dragon.settings import DragonSettings
from graphmill.systems.recommenders.multimodal_sizes import SCORES, WIDE, pairs_in_place, pairs_kept, sizes_of
from graphmill.training.contract import Execution
from graphmill.training.planning import Cost

_HIDDEN = 4  # times the embedding's width
_ENTRY = 48  # bytes of an entry of a homogeneous graph, in both orientations
_NEAREST = 130 << 20  # numbers held by the search for the nearest items: blocks of similarities and their order


def step_cost(graph: TypedGraph, settings: DragonSettings, batching: str, execution: Execution, precision: str) -> Cost:
    """The cost of one process; ``batching`` is "full": a step runs over the whole user-item graph."""
    m, size = settings.model, sizes_of(graph, settings.model.modalities)
    users, items, edges, d = size.users, size.items, size.edges, m.embedding_dim
    sets = len(size.widths)
    width = d * sets
    hidden = _HIDDEN * d
    parameters = sets * users * (d + 1) + sum((f + 1) * hidden + (hidden + 1) * d for f in size.widths)
    by_id = (users + items) * m.identity_dim
    parameters += by_id
    near = items * m.item_neighbours * sets if m.item_layers else 0
    alike = users * m.user_neighbours
    rows = settings.step_size() / settings.acceleration.processes
    negatives = settings.objective.negatives_per_positive
    # Rows of the homogeneous graphs that a chunk uses, each once.
    chunk = rows / max(execution.micro_batches, 1)
    some_users, some_items = min(chunk, users), min(chunk * (1 + negatives), items)
    parts = some_users / max(users, 1) * alike + some_items / max(items, 1) * near
    # Normalised and concatenated, propagated, weighted; hidden layers.
    kept = users * sets * d * 4 + items * sets * (d * 4 + (0 if execution.checkpointing else hidden))
    in_place = pairs_in_place(settings, precision)
    loss = pairs_kept(chunk, negatives, width, in_place) + (some_users + some_items) * width * 2
    if m.identity_dim:
        loss += pairs_kept(chunk, negatives, m.identity_dim, pairs_in_place(settings))
    dense = sum(2.0 * items * (f * hidden + hidden * d) for f in size.widths)
    moved = 2.0 * (NUM_LAYERS * 2 * edges * sets * d * 2) + 2.0 * parts * width * 2
    held = sum(items * f for f in size.widths) * WIDE + edges * size.bytes_per_edge + (near + alike) * _ENTRY
    evaluation = (users + items) * (sets * d * 3 + width * 2) + 2 * by_id + SCORES
    if m.identity_dim:  # both parts, and their concatenation
        evaluation += (users + items) * width
    products = dense * (3 + execution.checkpointing)
    return Cost(
        weights=int(parameters * WIDE),
        held=int(held),
        step=int((kept + loss + items * hidden) * WIDE + parts * _ENTRY * 2),
        gradients=int(parameters * WIDE),
        # Making the item-item graph before the first step takes about as much memory as an evaluation.
        evaluation=int(max(evaluation, _NEAREST if m.item_layers and items > 2048 else 0) * WIDE),
        flop=products,
        low_flop=products if precision != "fp32" else 0.0,
        moved=(
            moved
            + (users + items) * sets * d * 40
            + rows * (width + m.identity_dim) * (2 + negatives) * (3 if in_place else 8)
            + 8 * by_id
        )
        * WIDE,
        calls=400.0 + 150.0 * sets,
    )
