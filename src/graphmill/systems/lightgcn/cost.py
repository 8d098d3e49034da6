"""Memory and operations of a LightGCN step, from the sizes of the graph: the planner's formulas."""

from __future__ import annotations

from graphmill.graph.typed_graph import TypedGraph
from graphmill.systems.lightgcn.settings import LightGcnSettings
from graphmill.systems.recommenders.multimodal_sizes import SCORES, WIDE, pairs_in_place, pairs_kept, sizes_of
from graphmill.training.contract import Execution
from graphmill.training.planning import Cost


def step_cost(
    graph: TypedGraph, settings: LightGcnSettings, batching: str, execution: Execution, precision: str
) -> Cost:
    """The cost of one process; ``batching`` is "full": a step runs over the whole user-item graph."""
    size, d, layers = sizes_of(graph), settings.model.embedding_dim, settings.model.num_layers
    table = (size.users + size.items) * d
    pairs, negatives = settings.step_size() / settings.acceleration.processes, settings.objective.negatives_per_positive
    chunk = pairs / max(execution.micro_batches, 1)
    in_place = pairs_in_place(settings, precision)
    rows = (2.0 + negatives) * pairs
    # Vectors of two layers; the final vectors and their gradient; the tables' gradient; table rows for the norm.
    kept = 5 * table + pairs_kept(chunk, negatives, d, in_place) + (2.0 + negatives) * chunk * d * 2
    return Cost(
        weights=table * WIDE,
        held=size.edges * size.bytes_per_edge,
        step=int(kept * WIDE),
        gradients=table * WIDE,
        evaluation=int((4 * table + SCORES) * WIDE),
        flop=0.0,
        moved=(4.0 * layers * size.edges * d + (12.0 + 6.0 * layers) * table + 24.0 * rows * d) * WIDE,
        calls=200.0 + 60.0 * layers,
    )
