"""Nodes that were added to a graph after a training, with their edges and features."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import scipy.sparse as sp

from graphmill.graph.interactions import largest, to_rows
from graphmill.graph.spectral import Neighbourhoods
from graphmill.graph.training_links import TrainingLinks
from graphmill.graph.typed_graph import TypedGraph


@dataclass(frozen=True)
class LaterNodes:
    """``counts``: number of new nodes by type. ``edges``: by relation, distinct (source, target), int64 local numbers,
    including reverses; the i-th new node of a type with n known nodes has number n + i. ``features``: float32 [new
    nodes of the type, f] by type number and name of the set; the row of a node without features is zero. ``weights``: by
    relation the weights of ``edges``, float32, NaN where not known; empty: of none.
    """

    counts: Sequence[int]
    edges: Sequence[tuple[np.ndarray, np.ndarray]]
    features: Mapping[tuple[int, str], np.ndarray] = field(default_factory=dict)
    weights: Sequence[np.ndarray] = ()

    def strengths(self, graph: TypedGraph, relation: int) -> np.ndarray:
        """float32 [edges of a relation]: their weights relative to those of the graph, 1 where there are none."""
        relative = graph.edges(relation).relative_weights(self.weights[relation]) if self.weights else None
        return np.ones(len(self.edges[relation][0]), np.float32) if relative is None else relative

    def features_of(self, graph: TypedGraph, number: int) -> np.ndarray:
        """float32 [new nodes of the type, f]: their features, in the columns of :meth:`TypedGraph.all_features`."""
        kind, count, sets = graph.node_types[number].name, self.counts[number], []
        for name in graph.feature_sets(kind):
            known = graph.features(kind, name)
            assert known is not None
            given = self.features.get((number, name))
            sets.append(np.zeros((count, known.shape[1]), np.float32) if given is None else given)
        return np.concatenate([np.zeros((count, 0), np.float32), *sets], axis=1)

    @property
    def first(self) -> np.ndarray:
        """int64 [types + 1]: index of each type's first new node among all new nodes."""
        return np.concatenate([[0], np.cumsum(self.counts)]).astype(np.int64)


def neighbourhoods_of(later: LaterNodes, graph: TypedGraph, entries: Neighbourhoods) -> sp.csr_matrix:
    """float32 [new nodes (type by type), columns]: the new nodes' neighbourhoods in the columns of the run's basis."""
    relations, types = len(graph.relations), graph.node_types
    numbers = {t.name: n for n, t in enumerate(types)}
    first = later.first
    rows, keys, strengths = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)], [np.zeros(0, np.float32)]
    for number, (relation, ends) in enumerate(zip(graph.relations, later.edges, strict=True)):
        kinds = numbers[relation.source], numbers[relation.target]
        # A relation that is stored in only one direction has columns for both. For others the lookup below finds none.
        for place, (mine, theirs) in ((number, (0, 1)), (relations + number, (1, 0))):
            known, others = types[kinds[mine]].count, types[kinds[theirs]]
            new = (ends[mine] >= known) & (ends[theirs] < others.count)
            rows.append(ends[mine][new] - known + first[kinds[mine]])
            keys.append(ends[theirs][new] + others.offset + np.int64(place) * graph.num_nodes)
            strengths.append(later.strengths(graph, number)[new])
    row, key = np.concatenate(rows), np.concatenate(keys)
    column = np.minimum(np.searchsorted(entries.columns, key), max(len(entries.columns) - 1, 0))
    held = entries.columns[column] == key if len(entries.columns) else np.zeros(len(key), bool)
    places, values = (row[held], column[held]), entries.weights[column[held]]
    if entries.weighted:
        values = values * np.concatenate(strengths)[held]
    return sp.csr_matrix((values, places), (int(first[-1]), len(entries.columns)))


def grown_links(later: LaterNodes, links: TrainingLinks, graph: TypedGraph) -> TrainingLinks:
    """The training edges and the new edges together, with the node numbers of the grown graph."""
    number = {t.name: n for n, t in enumerate(graph.node_types)}
    counts = np.array([t.count for t in graph.node_types]) + np.array(later.counts)
    offset = np.concatenate([[0], np.cumsum(counts)])
    outgoing, offsets, weights = [], [], []
    for relation, matrix, (src, dst) in zip(graph.relations, links.outgoing, later.edges, strict=True):
        source, target = number[relation.source], number[relation.target]
        old, strengths = matrix.tocoo(), links.weights[relation.index]
        ends = np.concatenate([old.row, src]), np.concatenate([old.col, dst])
        rows = to_rows(*ends, counts[source], counts[target])  # a new edge may repeat a known one
        entries = np.ones(len(rows), np.int64), rows.columns, rows.indptr
        outgoing.append(sp.csr_matrix(entries, (counts[source], counts[target])))
        offsets.append((int(offset[source]), int(offset[target])))
        if strengths is not None:
            strengths = np.concatenate([strengths, later.strengths(graph, relation.index)])
            strengths = largest(rows, counts[target], *ends, strengths)
        weights.append(strengths)
    return TrainingLinks(outgoing, offsets, weights)
