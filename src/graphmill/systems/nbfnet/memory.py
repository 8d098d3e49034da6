"""What an NBFNet training holds in memory, from the degrees of the graph."""

from __future__ import annotations

from dataclasses import dataclass, replace
from weakref import WeakKeyDictionary

import numpy as np

from graphmill.evaluation.baselines.train_edges import TrainEdges
from graphmill.graph.typed_graph import TypedGraph
from graphmill.systems.nbfnet.settings import NbfnetModel, NbfnetSettings
from graphmill.training.planning import Part, Setup, ranking_part

_EDGE, _ROW = 24, 40
"""Bytes of an edge, and of a row besides its states, in the buffers and in the layer itself."""
QUERIES = 16
"""Queries scored at a time."""


@dataclass(frozen=True)
class Degrees:
    """``edges``: of messages, in both directions; ``reached``: edges of the node at the end of a random edge, Σ d² / Σ d;
    ``relations``: with the inverses that the graph does not have."""

    edges: int
    reached: float
    relations: int


_DEGREES: WeakKeyDictionary[TypedGraph, Degrees] = WeakKeyDictionary()


def degrees_of(graph: TypedGraph) -> Degrees:
    """The degrees of the training edges, in both directions; cached, since a planner asks many times."""
    if graph not in _DEGREES:
        count = np.zeros(graph.num_nodes, np.int64)
        for relation in graph.relations:
            target = graph.node_type(relation.target)
            into = np.bincount(graph.training_edges(relation)[1], minlength=target.count)
            count[target.offset : target.offset + target.count] += into
        both = count if any(relation.added_edges for relation in graph.relations) else 2 * count
        total = max(int(both.sum()), 1)
        _DEGREES[graph] = Degrees(
            total, float((both.astype(float) ** 2).sum()) / total, len(TrainEdges(graph).relations)
        )
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


def memory_parts(graph: TypedGraph, settings: NbfnetSettings, setup: Setup) -> list[Part]:
    """The parts of one process."""
    m, degrees, wanted = settings.model, degrees_of(graph), settings.objective.candidates
    d, largest = m.hidden_dim, max(t.count for t in graph.node_types)
    targets = float(min(wanted, largest) if wanted else largest)
    batch = settings.step_size() / settings.acceleration.processes
    rows, edges = reach(degrees, m, targets, targets / largest)
    r = degrees.relations
    layer = r * d + r * d * d + 3 * d * d + 3 * d
    parameters = m.num_layers * layer + r * d + 2 * r + 4 * d * d + 6 * d + 1
    factors = min(batch, degrees.relations) * degrees.relations * d * m.num_layers
    all_rows, all_edges = reach(degrees, m, float(largest))
    remedy = "lower acceleration.batch_size, model.nodes_per_layer or model.hidden_dim"
    return [
        Part("weights of relations and layers", "weights", parameters, remedy="lower model.hidden_dim"),
        Part(
            "edges",
            "always",
            degrees.edges * 44 + graph.num_nodes * 8,
            1,
            remedy="leave nodes or edges out of the graph",
        ),
        # States, their gradients and what the layers keep; edges; scores of the candidates.
        Part("states of the frontiers", "loss", batch * rows * (48 * d + _ROW), 1, uneven=True, remedy=remedy),
        Part("edges of the frontiers", "loss", batch * edges * _EDGE, 1, uneven=True, remedy=remedy),
        Part("scores of the candidates", "loss", 6 * batch * largest, remedy=remedy),
        Part("factors of queries and relations", "loss", 2 * factors, remedy=remedy),
        Part(
            "frontiers of an evaluation",
            "evaluation",
            QUERIES * (all_rows * (24 * d + _ROW) + all_edges * _EDGE),
            1,
            remedy=remedy,
        ),
        replace(ranking_part(1000.0, largest), remedy="leave nodes out of the graph"),
    ]
