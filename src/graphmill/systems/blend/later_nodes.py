"""What a blend knows of nodes that were added to the graph after it was made, from their edges to known nodes."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
import torch

from graphmill.graph.later_nodes import LaterNodes
from graphmill.graph.spectral import Neighbourhoods
from graphmill.graph.training_links import TrainingLinks
from graphmill.graph.typed_graph import TypedGraph
from graphmill.systems.factor.model import products


def neighbourhoods_of(later: LaterNodes, graph: TypedGraph, entries: Neighbourhoods) -> sp.csr_matrix:
    """float32 [new nodes (type by type), columns]: the new nodes' neighbourhoods in the columns of the run's basis."""
    relations, types = len(graph.relations), graph.node_types
    numbers = {t.name: n for n, t in enumerate(types)}
    first = later.first
    rows, keys = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for number, (relation, ends) in enumerate(zip(graph.relations, later.edges, strict=True)):
        kinds = numbers[relation.source], numbers[relation.target]
        # A relation that is stored in only one direction has columns for both. For others the lookup below finds none.
        for place, (mine, theirs) in ((number, (0, 1)), (relations + number, (1, 0))):
            known, others = types[kinds[mine]].count, types[kinds[theirs]]
            new = (ends[mine] >= known) & (ends[theirs] < others.count)
            rows.append(ends[mine][new] - known + first[kinds[mine]])
            keys.append(ends[theirs][new] + others.offset + np.int64(place) * graph.num_nodes)
    row, key = np.concatenate(rows), np.concatenate(keys)
    column = np.minimum(np.searchsorted(entries.columns, key), max(len(entries.columns) - 1, 0))
    held = entries.columns[column] == key if len(entries.columns) else np.zeros(len(key), bool)
    places = row[held], column[held]
    return sp.csr_matrix((entries.weights[places[1]], places), (int(first[-1]), len(entries.columns)))


def grown_links(later: LaterNodes, links: TrainingLinks, graph: TypedGraph) -> TrainingLinks:
    """The training edges and the new edges together, with the node numbers of the grown graph."""
    number = {t.name: n for n, t in enumerate(graph.node_types)}
    counts = np.array([t.count for t in graph.node_types]) + np.array(later.counts)
    offset = np.concatenate([[0], np.cumsum(counts)])
    outgoing, offsets = [], []
    for relation, matrix, (src, dst) in zip(graph.relations, links.outgoing, later.edges, strict=True):
        source, target = number[relation.source], number[relation.target]
        old = matrix.tocoo()
        ends = np.concatenate([old.row, src]), np.concatenate([old.col, dst])
        whole = sp.csr_matrix((np.ones(len(ends[0]), np.int64), ends), (counts[source], counts[target]))
        whole.data[:] = 1  # a new edge may repeat a known one
        outgoing.append(whole)
        offsets.append((int(offset[source]), int(offset[target])))
    return TrainingLinks(outgoing, offsets)


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
        ends, own = (number[relation.source], number[relation.target]), relations[relation.index][None]
        real, imaginary = own.chunk(2, dim=1)
        conjugate = torch.cat([real, -imaginary], 1)
        for mine, theirs, joined, weight in ((*ends, matrix, conjugate), (*ends[::-1], matrix.T, own)):
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
