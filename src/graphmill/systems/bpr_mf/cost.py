"""Memory and operations of a BPR-MF step, from the sizes of the graph: the planner's formulas."""

from __future__ import annotations

from graphmill.graph.typed_graph import TypedGraph
from graphmill.systems.bpr_mf.settings import BprMfSettings
from graphmill.systems.recommenders.multimodal_sizes import SCORES, WIDE, pairs_in_place, pairs_kept, sizes_of
from graphmill.training.contract import Execution
from graphmill.training.planning import Cost


def step_cost(graph: TypedGraph, settings: BprMfSettings, batching: str, execution: Execution, precision: str) -> Cost:
    """The cost of one process; ``batching`` is "full": there is no sampling."""
    size, d = sizes_of(graph), settings.model.embedding_dim
    table = (size.users + size.items) * d
    pairs, negatives = settings.step_size() / settings.acceleration.processes, settings.objective.negatives_per_positive
    in_place = pairs_in_place(settings)
    chunk = pairs / max(execution.micro_batches, 1)
    rows = (2.0 + negatives) * pairs
    return Cost(
        weights=table * WIDE,
        # The view's rows in both orders; the sampler's pairs, order and keys.
        held=size.edges * 64,
        # Products too, if rows are looked up; a gradient of each table before summation.
        step=int((pairs_kept(chunk, negatives, d, in_place) * (1 if in_place else 4 / 3) + 2 * table) * WIDE),
        gradients=table * WIDE,
        evaluation=int((2 * table + SCORES) * WIDE),
        flop=0.0,
        moved=((3.0 if in_place else 24.0) * rows * d + 8.0 * table) * WIDE,
        calls=150.0,
    )
