"""Memory and operations of a ConvE step, from the settings and the number of entities: the planner's formulas."""

from __future__ import annotations

import numpy as np

from graphmill.graph.typed_graph import TypedGraph
from graphmill.kernels.full_softmax import states_per_block
from graphmill.systems.conve.one_to_n import entities_per_block
from graphmill.systems.conve.settings import ConveSettings
from graphmill.training.contract import Execution
from graphmill.training.device import choose_device
from graphmill.training.planning import Cost, ranking_bytes

_WIDE = 4


def step_cost(graph: TypedGraph, settings: ConveSettings, batching: str, execution: Execution, precision: str) -> Cost:
    """The cost of one process; ``batching`` is "full": there are no messages to sample."""
    m, a = settings.model, settings.acceleration
    batch = settings.step_size() // a.processes
    entities, relations, d = graph.num_nodes, 2 * len(graph.relations), m.embedding_dim
    height, width = 2 * m.shape[0] - m.kernel_height + 1, m.shape[1] - m.kernel_width + 1
    maps = m.output_channels * height * width
    table = entities * (d + 1)
    small = m.output_channels * (m.kernel_height * m.kernel_width + 3) + 3 * d + 2
    parameters = table + relations * d + maps * d + small
    device = choose_device(a.device, or_cpu=True).device
    if settings.objective.loss == "softmax":
        block = states_per_block(batch, entities, execution.micro_batches, device) * entities
    else:
        block = entities_per_block(batch, entities, parts=execution.micro_batches, device=device) * batch
    sampled = settings.objective.loop == "slcwa"
    # The stored stages of the feature map: convolution, norm, ReLU, dropout; its gradient and a copy in the backward
    # pass.
    feature = batch * maps * _WIDE * (4 if execution.checkpointing else 6)
    candidates = batch * (1 + settings.objective.negatives_per_positive) * d * 4 * _WIDE
    # Scores of a block, what the loss makes of them and the products' copies; the table's gradient, twice while it is
    # added.
    loss = candidates if sampled else 4 * block * _WIDE
    scores = 0.0 if sampled else 2.0 * batch * entities * d
    train = sum(relation.edges for relation in graph.relations)
    held_out = float(sum(np.count_nonzero(graph.edges(r.index).split) for r in graph.relations))
    products = 3 * scores + 3 * 2.0 * batch * maps * d * (1 + execution.checkpointing / 3)
    convolution = 3 * 2.0 * batch * maps * m.kernel_height * m.kernel_width
    return Cost(
        weights=parameters * _WIDE,
        held=2 * train * 40,
        step=int(feature + loss + 2 * table * _WIDE),
        gradients=(parameters - table) * _WIDE,
        evaluation=ranking_bytes(held_out, entities) + 2 * table * _WIDE,
        flop=products + 4 * convolution,
        low_flop=products if precision != "fp32" else 0.0,
        moved=(0 if sampled else 14.0 * batch * entities * _WIDE) + 40.0 * batch * maps * _WIDE + 6.0 * table * _WIDE,
        calls=400.0,
    )
