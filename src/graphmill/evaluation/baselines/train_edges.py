"""The training edges of a graph for baselines: sparse, by relation, and always in both directions.

If the relations of a graph have their reverses, the out-edges of a node are all its edges. A graph of triples lacks
reverses: there an inverse relation is added for each missing one, with ConvE's numbering.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from graphmill.graph.sorted_unique import sorted_unique
from graphmill.graph.splits import TRAIN

if TYPE_CHECKING:
    from graphmill.graph.typed_graph import NodeType, TypedGraph

Int64 = NDArray[np.int64]


@dataclass(frozen=True)
class DirectedRelation:
    """Relation ``index`` of the graph, or the inverse of relation ``index`` − M, with the types of its ends."""

    index: int
    source: str
    target: str


@dataclass(frozen=True)
class DirectedEdges:
    """Training edges of a :class:`DirectedRelation`: distinct pairs of local numbers."""

    src: Int64
    dst: Int64


class TrainEdges:
    """Typed training edges of a graph.

    ``relations``: those of the graph, and an inverse for each whose reverse the graph does not hold. :meth:`matrix`
    supports the inverses of all.
    """

    def __init__(self, graph: TypedGraph) -> None:
        self.node_types: tuple[NodeType, ...] = graph.node_types
        self.num_nodes = graph.num_nodes
        self._types = {node_type.name: node_type for node_type in graph.node_types}
        self._count = len(graph.relations)
        own = [DirectedRelation(r.index, r.source, r.target) for r in graph.relations]
        self._ends = own + [DirectedRelation(self._count + r.index, r.target, r.source) for r in own]
        self._keys = []
        for relation in own:
            edges = graph.edges(relation.index)
            train = np.asarray(edges.split) == TRAIN
            width = self._types[relation.target].count
            self._keys.append(
                sorted_unique(np.asarray(edges.src)[train].astype(np.int64) * width + np.asarray(edges.dst)[train])
            )
        self._known_as = {inverse.index: self._held_as(inverse) for inverse in self._ends[self._count :]}
        missing = [inverse for inverse in self._ends[self._count :] if self._known_as[inverse.index] == inverse.index]
        self.relations = tuple(own + missing)
        self._matrices: dict[int, sp.csr_matrix] = {}

    @cached_property
    def reversed(self) -> bool:
        """Whether the graph holds the reverse of every relation."""
        return len(self.relations) == self._count

    def ends(self, relation: int) -> tuple[NodeType, NodeType]:
        """The types of a relation's sources and targets; relations M … 2M − 1 are the inverses."""
        result = self._ends[relation]
        return self._types[result.source], self._types[result.target]

    def edges(self, relation: DirectedRelation | int) -> DirectedEdges:
        """Training edges of a relation or an inverse, sorted by (source, target) of the relation itself."""
        relation = relation if isinstance(relation, int) else relation.index
        base = relation % self._count
        width = self._types[self._ends[base].target].count
        src, dst = self._keys[base] // max(width, 1), self._keys[base] % max(width, 1)
        src, dst = (src, dst) if relation < self._count else (dst, src)
        return DirectedEdges(src, dst)

    def matrix(self, relation: int) -> sp.csr_matrix:
        """float32 [sources, targets]: 1 for each training edge of a relation or an inverse; cached."""
        if relation not in self._matrices:
            edges, (source, target) = self.edges(relation), self.ends(relation)
            ones = np.ones(len(edges.src), np.float32)
            self._matrices[relation] = sp.csr_matrix((ones, (edges.src, edges.dst)), (source.count, target.count))
        return self._matrices[relation]

    def known_as(self, relation: int) -> int:
        """The graph's relation with the edges of an inverse; the inverse itself if there is none."""
        return self._known_as.get(relation, relation)

    def _held_as(self, inverse: DirectedRelation) -> int:
        edges = self.edges(inverse.index)
        turned = np.sort(edges.src * self._types[inverse.target].count + edges.dst)
        for relation in self._ends[: self._count]:
            same = (relation.source, relation.target) == (inverse.source, inverse.target)
            if same and np.array_equal(self._keys[relation.index], turned):
                return relation.index
        return inverse.index
