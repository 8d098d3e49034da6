"""Memory and operations of an NBFNet step, from the settings and the degrees of the graph: the planner's formulas."""

from __future__ import annotations

from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np

from graphmill.graph.splits import TRAIN
from graphmill.graph.typed_graph import TypedGraph
from graphmill.systems.nbfnet.settings import NbfnetModel, NbfnetSettings
from graphmill.training.contract import Execution
from graphmill.training.planning import Cost, ranking_bytes

_WIDE, _EDGE, _ROW = 4, 24, 40
"""Bytes of fp32; of an edge and of a row besides its states, in the buffers and in the layer itself."""
QUERIES = 16
"""Queries scored at a time."""


@dataclass(frozen=True)
class Degrees:
    """``edges``: of messages, in both directions; ``mean``: edges of a node; ``reached``: edges of the node at the end of
    a random edge, Σ d² / Σ d; ``relations``: with inverses, at most."""

    edges: int
    mean: float
    reached: float
    relations: int


_DEGREES: WeakKeyDictionary[TypedGraph, Degrees] = WeakKeyDictionary()


def degrees_of(graph: TypedGraph) -> Degrees:
    """The degrees of the training edges, in both directions; cached, since a planner asks many times."""
    if graph not in _DEGREES:
        count = np.zeros(graph.num_nodes, np.int64)
        for relation in graph.relations:
            edges, target = graph.edges(relation), graph.node_type(relation.target)
            into = np.bincount(np.asarray(edges.dst)[np.asarray(edges.split) == TRAIN], minlength=target.count)
            count[target.offset : target.offset + target.count] += into
        both = count if any(relation.added_edges for relation in graph.relations) else 2 * count
        total = max(int(both.sum()), 1)
        mean = total / max(graph.num_nodes, 1)
        _DEGREES[graph] = Degrees(total, mean, float((both.astype(float) ** 2).sum()) / total, 2 * len(graph.relations))
    return _DEGREES[graph]


def reach(degrees: Degrees, model: NbfnetModel, targets: float, share: float = 1.0) -> tuple[float, float]:
    """Rows and edges of one query over all layers, at most about; ``targets``: the nodes that the last layer may reach;
    ``share``: of the last layer's edges that end in these."""
    rows, edges, frontier = 1.0, 0.0, 1.0
    for number in range(model.num_layers):
        last = number == model.num_layers - 1
        followed = min(frontier * degrees.reached, float(degrees.edges))
        frontier = min(followed, targets if last else float(model.nodes_per_layer))
        rows, edges = rows + frontier, edges + followed * (share if last else 1.0)
    return rows, edges


def step_cost(graph: TypedGraph, settings: NbfnetSettings, batching: str, execution: Execution, precision: str) -> Cost:
    """The cost of one process; ``batching`` is "full": a query's frontier is no sample."""
    m, a, degrees = settings.model, settings.acceleration, degrees_of(graph)
    d, largest = m.hidden_dim, max(t.count for t in graph.node_types)
    wanted = settings.objective.candidates
    targets = float(min(wanted, largest) if wanted else largest)
    batch = settings.step_size() / a.processes
    chunk = batch / max(execution.loss_chunks, 1)
    rows, edges = reach(degrees, m, targets, targets / largest)
    parameters = m.num_layers * ((d + 1) * degrees.relations * d + 3 * d * d) + degrees.relations * d + 4 * d * d
    factors = min(chunk, degrees.relations) * degrees.relations * d * m.num_layers
    asked_rows, asked_edges = reach(degrees, m, float(largest))
    scored = QUERIES * (asked_rows * (6 * d * _WIDE + _ROW) + asked_edges * _EDGE)
    products = 3 * 2.0 * batch * rows * d * d * 3
    return Cost(
        weights=parameters * _WIDE,
        # Links as heads and tails, and the edges by source; matrices of known links.
        held=int(degrees.edges * 44 + graph.num_nodes * 8),
        # States, their gradients and what the layers keep; edges; factors of queries and relations with their gradient.
        step=int(chunk * (rows * (12 * d * _WIDE + _ROW) + edges * _EDGE + 6 * largest * _WIDE) + 2 * factors * _WIDE),
        gradients=parameters * _WIDE,
        evaluation=int(scored + ranking_bytes(1000.0, largest)),
        flop=products,
        low_flop=products if precision != "fp32" else 0.0,
        moved=batch * (rows * 30.0 * d + edges * 12.0 * d) * _WIDE,
        calls=60.0 * m.num_layers,
        ragged=True,
    )
