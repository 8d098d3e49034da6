"""What a training of ComplEx, DistMult, RotatE or TransE holds in memory."""

from __future__ import annotations

from weakref import WeakKeyDictionary

from graphmill.evaluation.baselines.train_edges import TrainEdges
from graphmill.graph.typed_graph import TypedGraph
from graphmill.systems.factor.settings import FactorSettings
from graphmill.training.planning import Part, Setup, ranking_part

_REVERSED: WeakKeyDictionary[TypedGraph, bool] = WeakKeyDictionary()


def has_reverses(graph: TypedGraph) -> bool:
    """Whether the graph has the reverse of every relation; cached, since this sorts all edges."""
    if graph not in _REVERSED:
        _REVERSED[graph] = TrainEdges(graph).reversed
    return _REVERSED[graph]


def scores_per_link(graph: TypedGraph, settings: FactorSettings) -> float:
    """Candidates per link's target: the mean over the training edges in both directions."""
    counts = {t.name: t.count for t in graph.node_types}
    most = settings.objective.candidates or graph.num_nodes
    scores = sum(r.edges * (min(most, counts[r.source]) + min(most, counts[r.target])) for r in graph.relations)
    return scores / max(2 * sum(r.edges for r in graph.relations), 1)


def memory_parts(graph: TypedGraph, settings: FactorSettings, setup: Setup) -> list[Part]:
    """The parts of one process."""
    o, d = settings.objective, settings.model.embedding_dim
    relations = (1 if has_reverses(graph) else 2) * len(graph.relations)
    of_relation = d // 2 if settings.system == "rotate" else d
    parameters = graph.num_nodes * d + relations * (of_relation + 1)
    batch = settings.step_size() // settings.acceleration.processes
    candidates = scores_per_link(graph, settings)
    compared = candidates + relations * (settings.system in ("complex", "distmult") and o.relation_weight > 0)
    read = min(graph.num_nodes, 2 * batch + candidates * len(graph.node_types))
    held_out = sum(r["split"]["valid"] + r["split"]["test"] for r in graph.manifest["relations"])
    return [
        Part("embeddings", "weights", parameters),
        # Each link in both directions as four numbers, their order, and the sparse edges.
        Part("links", "always", 2 * sum(r.edges for r in graph.relations), 64),
        Part("vectors that a step reads, and their gradient", "kept", 2 * read * d + parameters),
        # Scores, their exponentials and gradients; the looked-up rows and their products.
        Part("scores of the loss", "loss", 6 * batch * compared + 16 * batch * d),
        ranking_part(held_out, max(t.count for t in graph.node_types)),
        Part("vectors of an evaluation", "evaluation", parameters),
    ]
