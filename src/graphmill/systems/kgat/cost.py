"""Memory and operations of a KGAT step, from the sizes of the graph: the planner's formulas. Both phases need about the
same memory, except for the layers' states in the interaction phase; time is the mean over the steps of both.
"""

from __future__ import annotations

import math
from itertools import pairwise

from graphmill.graph.knowledge import knowledge_view
from graphmill.graph.typed_graph import TypedGraph
from graphmill.systems.kgat.graph import TOGETHER
from graphmill.systems.kgat.settings import KgatSettings
from graphmill.systems.recommenders.multimodal_sizes import SCORES, WIDE, pairs_in_place, pairs_kept, sizes_of
from graphmill.training.contract import Execution
from graphmill.training.device import choose_device
from graphmill.training.planning import Cost

_BYTES_PER_EDGE = 190
"""Ends and relation, the matrix in both orders with and without attention, edges by relation, keys, the buffer."""

_BYTES_TO_MASK = 24
"""Keys, places in the transpose, and the step's weights in both orders."""


def step_cost(graph: TypedGraph, settings: KgatSettings, batching: str, execution: Execution, precision: str) -> Cost:
    """The cost of one process; ``batching`` is "full": a step runs over the whole graph."""
    m, o, size = settings.model, settings.objective, sizes_of(graph)
    knowledge, nodes = knowledge_view(graph), graph.num_nodes
    facts, relations = len(knowledge), 2 + 2 * len(knowledge.names)
    edges, d, k = 2 * (size.edges + facts), m.embedding_dim, m.relation_dim
    dims = [d, *m.layer_dims]
    table = nodes * d
    layers = dense = kept = inputs = moved = 0.0
    compiled = pairs_in_place(settings, precision)
    on_cpu = choose_device(settings.acceleration.device, allow_fallback=True).device.type == "cpu"
    pairs, negatives = settings.step_size() / settings.acceleration.processes, o.negatives_per_positive
    # The nodes that a step looks up: on every process those of the whole batch, each once. The last layer computes only
    # these.
    looked_up = min(settings.step_size() * (2 + negatives), nodes)
    for place, (a, b) in enumerate(pairwise(dims), 1):
        wide = 2 * a if m.aggregation == "graphsage" else a
        both = m.aggregation == "bi_interaction"
        layers += (wide + 1) * b + both * (a + 1) * b
        # The layer before computes the input of the last one: these rows and their neighbours (assuming the mean
        # degree).
        asked = looked_up + (nodes - looked_up) * (1 - math.exp(-edges / nodes * looked_up / nodes))
        rows = {len(dims) - 1: looked_up, len(dims) - 2: asked}.get(place, nodes) if on_cpu else nodes
        dense += 2.0 * rows * (wide + both * a) * b
        # The products' inputs, and each result before and after its ReLU; the dropout's mask; a result of some rows is
        # put among those of all nodes.
        kept += rows * (wide + a + both * a + (2 + 2 * both + 2) * b) + (nodes * b if rows < nodes else 0)
        moved += 4.0 * edges * a * rows / nodes + rows * (14.0 * a + 16.0 * b)
        inputs += nodes * a
    widest = max(a + b for a, b in pairwise(dims))
    # Of what is looked up: each state, its gradient and the vector that is scaled, and the vector's gradient.
    chunk = pairs / max(execution.loss_chunks, 1)
    loss = looked_up * sum(dims) * 4 + pairs_kept(chunk, negatives, sum(dims), compiled)
    states = inputs + 6.0 * nodes * widest if execution.checkpointing else kept + 3.0 * nodes * widest
    first = settings.step_size()
    second = o.facts_per_step(first, size.edges, facts)
    given = float(settings.training.steps_per_epoch)
    steps = (given or max(size.edges / first, 1.0), (given or edges / second + 1) if o.knowledge_phase else 0.0)
    share = [s / sum(steps) for s in steps]
    # All states, concatenated and scaled; before them the attention: projected heads and tails, translations and
    # translated heads, for one relation or a group, and logits.
    evaluated = max(nodes * 3 * sum(dims), 2 * max(2 * nodes, TOGETHER) * (d + k)) + 3 * edges + SCORES
    products = share[0] * (dense * (3 + execution.checkpointing)) + share[1] * (3.0 * 2 * 3 * second * d * k)
    return Cost(
        weights=int((table + layers + relations * (k + d * k)) * WIDE),
        # The second phase's optimizer also has moments of the vectors.
        held=edges * (_BYTES_PER_EDGE + _BYTES_TO_MASK * o.mask_pairs) + (2 * table * WIDE if o.knowledge_phase else 0),
        step=int((states + loss + 3 * table) * WIDE),
        gradients=int((table + layers) * WIDE),
        evaluation=int(evaluated * WIDE),
        flop=products,
        low_flop=products if precision != "fp32" else 0.0,
        moved=(
            share[0] * 2 * moved
            + 10.0 * table
            + (2.0 + negatives) * pairs * sum(dims) * (3 if compiled else 8)
            + share[1] * second * (d + k) * 24
        )
        * WIDE,
        calls=300.0 + 150.0 * len(m.layer_dims),
    )
