"""Nodes added after the training: the graph with their facts, and the vectors that fit these best."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from graphmill.graph.interactions import interaction_relation
from graphmill.graph.knowledge import Knowledge, knowledge_view
from graphmill.graph.later_nodes import LaterNodes
from graphmill.systems.kgat.graph import CollaborativeGraph
from graphmill.systems.kgat.model import Kgat

if TYPE_CHECKING:
    from graphmill.systems.kgat.system import KgatSystem


def with_later(system: KgatSystem, later: LaterNodes) -> CollaborativeGraph:
    """The collaborative graph with the new nodes, which have the last numbers, type after type."""
    graph, known, met = system.graph, knowledge_view(system.graph), interaction_relation(system.graph)
    first = dict(zip((t.name for t in graph.node_types), later.first.tolist(), strict=False))
    heads, relations, tails = [known.head], [known.relation], [known.tail]
    interactions = np.zeros(0, np.int64), np.zeros(0, np.int64)
    for relation, (src, dst) in zip(graph.relations, later.edges, strict=True):
        ends = []
        for kind, local in ((relation.source, src), (relation.target, dst)):
            old = graph.node_type(kind)
            ends.append(
                np.where(local < old.count, local + old.offset, local - old.count + graph.num_nodes + first[kind])
            )
        if relation.index == met.index:
            interactions = ends[0], ends[1]
        elif relation.name in known.names and not relation.added_reverse:
            heads.append(ends[0])
            tails.append(ends[1])
            relations.append(np.full(len(src), known.names.index(relation.name), np.int64))
    facts = np.unique(np.stack([np.concatenate(part) for part in (relations, heads, tails)]), axis=1)
    grown = Knowledge(facts[1], facts[0], facts[2], known.names)
    nodes = graph.num_nodes + int(later.first[-1])
    return CollaborativeGraph(system.view, grown, nodes, interactions)


def fitted_to_facts(model: Kgat, facts: CollaborativeGraph, known: int, first: np.ndarray) -> np.ndarray:
    """float32 [new, d]: for each new node v the e that minimises Σ ‖W_r e + e_r − W_r e_t‖² + λ ‖e − m‖² over its edges
    (r, t) to known nodes: the training loss of facts, solved in closed form. ``first`` [new, d]: m, the mean of the
    node's type. λ is the mean weight of a fact, so that one fact and m count equally.
    """
    vectors = model.nodes().detach().cpu().double().numpy()
    projections = model.projections.detach().cpu().double().numpy()  # [R, d, k]
    translations = model.translations.detach().cpu().double().numpy()
    grams = np.einsum("rdk,rek->rde", projections, projections)
    weight = float(np.trace(grams, axis1=1, axis2=2).mean()) / vectors.shape[1]
    out = first.astype(np.float64)
    for row in range(len(first)):
        edges = np.arange(facts.indptr[known + row], facts.indptr[known + row + 1])
        edges = edges[facts.tail[edges] < known]
        left, right = weight * np.eye(vectors.shape[1]), weight * out[row]
        for relation in np.unique(facts.relation[edges]):
            tails = vectors[facts.tail[edges[facts.relation[edges] == relation]]]
            projection = projections[relation]
            left = left + len(tails) * grams[relation]
            right = right + ((tails @ projection - translations[relation]) @ projection.T).sum(0)
        out[row] = np.linalg.solve(left, right)
    return out.astype(np.float32)
