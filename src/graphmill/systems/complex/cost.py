"""Memory and operations of a ComplEx step, from the settings and the sizes of the graph: the planner's formulas."""

from __future__ import annotations

from weakref import WeakKeyDictionary

from graphmill.evaluation.baselines.train_edges import TrainEdges
from graphmill.graph.typed_graph import TypedGraph
from graphmill.systems.complex.settings import ComplexSettings
from graphmill.training.contract import Execution
from graphmill.training.planning import Cost, ranking_bytes

_WIDE = 4


_REVERSED: WeakKeyDictionary[TypedGraph, bool] = WeakKeyDictionary()


def has_reverses(graph: TypedGraph) -> bool:
    """Whether the graph has the reverse of every relation; cached, since a planner asks many times."""
    if graph not in _REVERSED:
        _REVERSED[graph] = TrainEdges(graph).reversed
    return _REVERSED[graph]


def scores_per_link(graph: TypedGraph, settings: ComplexSettings) -> float:
    """Candidates per link's target: the mean over the training edges in both directions."""
    counts = {t.name: float(t.count) for t in graph.node_types}
    wanted = settings.objective.candidates
    total = weight = 0.0
    for relation in graph.relations:
        for end in (relation.source, relation.target):
            total += relation.edges * (min(wanted, counts[end]) if wanted else counts[end])
            weight += relation.edges
    return total / max(weight, 1.0)


def step_cost(
    graph: TypedGraph, settings: ComplexSettings, batching: str, execution: Execution, precision: str
) -> Cost:
    """The cost of one process; ``batching`` is "full": there are no messages to sample."""
    a, d = settings.acceleration, settings.model.embedding_dim
    relations = (1 if has_reverses(graph) else 2) * len(graph.relations)
    batch = settings.step_size() // a.processes
    parameters = (graph.num_nodes + relations) * d + relations * settings.model.popularity
    candidates = scores_per_link(graph, settings)
    chunk = batch / max(execution.micro_batches, 1)
    read = min(graph.num_nodes, 2 * batch + candidates * len(graph.node_types))
    edges = sum(relation.edges for relation in graph.relations)
    held_out = float(sum(r["split"]["valid"] + r["split"]["test"] for r in graph.manifest["relations"]))
    products = 3 * 2.0 * batch * candidates * d
    return Cost(
        weights=parameters * _WIDE,
        # The links in both directions as four numbers each, their order, and the sparse edges.
        held=int(2 * edges * 64),
        # Scores, their exponentials and gradients; the looked-up rows and their products; the vectors that the step reads,
        # with their gradient; the table's gradient.
        step=int((6 * chunk * candidates + 16 * chunk * d + 2 * read * d + parameters) * _WIDE),
        gradients=parameters * _WIDE,
        evaluation=int(ranking_bytes(held_out, max(t.count for t in graph.node_types)) + parameters * _WIDE),
        flop=products,
        low_flop=products if precision != "fp32" else 0.0,
        moved=(10.0 * batch * candidates + 60.0 * batch * d + 8.0 * parameters) * _WIDE,
        calls=250.0,
    )
