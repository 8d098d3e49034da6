"""What a blend knows of nodes that were added to the graph after it was made, from their edges to known nodes."""

from __future__ import annotations

import numpy as np
import torch

from graphmill.graph.later_nodes import LaterNodes
from graphmill.graph.training_links import TrainingLinks
from graphmill.graph.typed_graph import TypedGraph
from graphmill.systems.factor.model import products


def grown_factors(
    later: LaterNodes, graph: TypedGraph, links: TrainingLinks, vectors: np.ndarray, of_relations: np.ndarray
) -> np.ndarray:
    """float32 [nodes of the grown graph, d]: ComplEx's ``vectors`` [nodes, d], and those of the new nodes. ``links``: of the
    grown graph. ``of_relations`` [relations, d].

    A ridge regression per type predicts a node's vector from its edges to known nodes: from the sum of the vectors whose
    product with it is an edge's score, divided by √(1 + edges) and by 1 + edges.
    """
    nodes, relations = (torch.from_numpy(np.asarray(part, np.float32)) for part in (vectors, of_relations))
    of_type = nodes.split([t.count for t in graph.node_types])
    sums = [np.zeros((len(y) + more, nodes.shape[1])) for y, more in zip(of_type, later.counts, strict=True)]
    edges = [np.zeros((len(total), 1)) for total in sums]
    number = {t.name: n for n, t in enumerate(graph.node_types)}
    for relation, matrix in zip(graph.relations, links.outgoing, strict=True):
        ends, vector = (number[relation.source], number[relation.target]), relations[relation.index][None]
        real, imaginary = vector.chunk(2, dim=1)
        conjugate = torch.cat([real, -imaginary], 1)
        for mine, theirs, joined, weight in ((*ends, matrix, conjugate), (*ends[::-1], matrix.T, vector)):
            known = joined.tocsr()[:, : len(of_type[theirs])]
            sums[mine] += known @ products(of_type[theirs], weight, "complex").numpy()
            edges[mine] += np.asarray(known.sum(1)).reshape(-1, 1)
    parts = []
    for y, total, count in zip(of_type, sums, edges, strict=True):
        x = np.concatenate([total / np.sqrt(1 + count), total / (1 + count)], 1)
        known, new = x[: len(y)], x[len(y) :]
        weights = np.linalg.solve(known.T @ known + np.eye(x.shape[1]), known.T @ y.numpy())
        parts += [y.numpy(), (new @ weights).astype(np.float32)]
    return np.concatenate(parts)


RIDGE = 0.1
"""Of the mean square of a feature, over the known nodes of a type."""


def from_features(later: LaterNodes, graph: TypedGraph, rows: np.ndarray, vectors: np.ndarray) -> np.ndarray:
    """float32 [new nodes (type by type), d]: the new nodes' spectral vectors, by a ridge regression per type of ``vectors``
    float32 [nodes, d] on the features ``rows`` float32 [nodes of the grown graph, f]."""
    predicted, first = [], 0
    for t, more in zip(graph.node_types, later.counts, strict=True):
        known, new = rows[first : first + t.count], rows[first + t.count : first + t.count + more]
        first += t.count + more
        gram = known.T @ known
        penalty = RIDGE * max(float(np.trace(gram)) / max(len(gram), 1), 1e-6)
        weights = np.linalg.solve(gram + penalty * np.eye(len(gram)), known.T @ vectors[t.offset : t.offset + t.count])
        predicted.append((new @ weights).astype(np.float32))
    return np.concatenate(predicted)
