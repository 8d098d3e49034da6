"""What HGT trains on: the training edges of a typed graph as messages, as supervision and as a filter for negatives."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from graphmill.errors import InputError
from graphmill.sampling.negatives import pair_keys
from graphmill.sampling.neighbor_picks import InEdges

if TYPE_CHECKING:
    from graphmill.graph.typed_graph import TypedGraph
    from graphmill.systems.hgt.settings import HgtObjective


@dataclass(frozen=True)
class RelationEdges:
    """One relation's training edges, local node numbers, sorted by (dst, src)."""

    source_type: int
    target_type: int
    src: np.ndarray
    dst: np.ndarray
    pair: np.ndarray
    source_offset: int
    target_offset: int
    num_targets: int

    @cached_property
    def keys(self) -> np.ndarray:
        """Sorted keys of the known training links, for filtering negatives."""
        return pair_keys(self.src, self.dst, self.num_targets)

    @cached_property
    def degree(self) -> np.ndarray:
        """int64 [num_targets]: training edges into each target."""
        return np.bincount(self.dst, minlength=self.num_targets)


@dataclass(frozen=True)
class Similar:
    """Nodes of a type (number ``kind``) that share neighbours: each anchor's positives as CSR, in local numbers;
    ``first``: the offset."""

    kind: int
    first: int
    count: int
    anchors: np.ndarray
    indptr: np.ndarray
    positives: np.ndarray


class HgtData:
    """Training edges per relation and the similarity graph of the contrastive term."""

    def __init__(self, graph: TypedGraph, objective: HgtObjective) -> None:
        self.graph = graph
        types = {t.name: number for number, t in enumerate(graph.node_types)}
        self.relations: list[RelationEdges] = []
        for relation in graph.relations:
            edges = graph.edges(relation.index)
            train = np.flatnonzero(np.asarray(edges.split) == 0)
            numbers = types[relation.source], types[relation.target]
            source, target = (graph.node_types[number] for number in numbers)
            src, dst, pair = (np.asarray(array)[train] for array in (edges.src, edges.dst, edges.pair))
            self.relations.append(RelationEdges(*numbers, src, dst, pair, source.offset, target.offset, target.count))
        if not any(len(r.src) for r in self.relations):
            raise InputError(f"{graph.path} has no training edges; reduce graph.split.valid and graph.split.test")
        self.similar = self._similar(graph, types, objective)

    def in_edges(self) -> list[InEdges]:
        """The edges of all relations by destination, held-out ones included, memory-mapped from the graph's files."""
        edges = (self.graph.edges(relation.index) for relation in self.graph.relations)
        pairs = zip(self.relations, edges, strict=True)
        return [InEdges(r.source_type, r.target_type, e.indptr, e.src, e.pair, e.split) for r, e in pairs]

    def by_type(self, nodes: np.ndarray) -> list[np.ndarray]:
        """Ascending global node numbers, converted to local ones per type."""
        bounds = np.searchsorted(nodes, [t.offset for t in self.graph.node_types] + [self.graph.num_nodes])
        return [nodes[a:b] - t.offset for a, b, t in zip(bounds[:-1], bounds[1:], self.graph.node_types, strict=True)]

    def _similar(self, graph: TypedGraph, types: dict[str, int], objective: HgtObjective) -> Similar | None:
        anchor, via = objective.contrastive_type, objective.contrastive_via
        if objective.contrast == 0.0 or not any({r.source, r.target} == {anchor, via} for r in graph.relations):
            return None
        from graphmill.graph.jaccard import shared_neighbour_jaccard

        similarity = shared_neighbour_jaccard(graph, anchor, via, threshold=objective.similarity_threshold)
        indptr, indices = similarity.indptr, similarity.indices
        anchors = np.flatnonzero(np.diff(indptr) > 0)
        if not len(anchors):
            return None
        node_type = graph.node_type(anchor)
        return Similar(types[anchor], node_type.offset, node_type.count, anchors, indptr, indices)
