"""The training edges of a graph for baselines: sparse, by relation, and always in both directions.

If the relations of a graph have their reverses, the out-edges of a node are all its edges. A graph of triples lacks
reverses: there an inverse relation is added for each missing one, with ConvE's numbering.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from graphmill.errors import InputError
from graphmill.graph.training_links import TrainingLinks
from graphmill.graph.typed_graph import NodeType

if TYPE_CHECKING:
    from graphmill.graph.typed_graph import TypedGraph

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
        relations = [DirectedRelation(r.index, r.source, r.target) for r in graph.relations]
        self._take(graph.node_types, relations, TrainingLinks.of_graph(graph))
        self._number({inverse.index: self._held_as(inverse) for inverse in self._ends[self._count :]})

    @classmethod
    def of_links(cls, links: TrainingLinks, held_as: np.ndarray) -> Self:
        """Those of links that are stored apart from their graph. ``held_as`` int64 [M]: :meth:`known_as` of each inverse.

        Raises :class:`InputError` if it names relations of other ends.
        """
        edges, count = cls.__new__(cls), len(links.outgoing)
        ends = [links.ends(number) for number in range(count)]
        types = {(e.offset, e.count): NodeType(f"{e.offset}+{e.count}", e.count, e.offset) for p in ends for e in p}
        names = [[types[e.offset, e.count].name for e in pair] for pair in ends]
        edges._take(tuple(types.values()), [DirectedRelation(n, *pair) for n, pair in enumerate(names)], links)
        for number, held in enumerate(held_as.tolist()):
            if held != count + number and not (0 <= held < count and names[held] == names[number][::-1]):
                raise InputError(f"relation {held} does not hold the reverses of relation {number}")
        edges._number({count + number: held for number, held in enumerate(held_as.tolist())})
        return edges

    def _take(self, types: tuple[NodeType, ...], relations: list[DirectedRelation], links: TrainingLinks) -> None:
        self.node_types, self._count, self._keys = types, len(relations), list[Int64]()
        for matrix in links.outgoing:
            entries = matrix.tocoo()
            self._keys.append(entries.row.astype(np.int64) * matrix.shape[1] + entries.col)
        self.num_nodes = max((t.offset + t.count for t in types), default=0)
        self._types = {node_type.name: node_type for node_type in types}
        self._ends = relations + [DirectedRelation(self._count + r.index, r.target, r.source) for r in relations]
        self._matrices: dict[int, sp.csr_matrix] = {}

    def _number(self, known_as: dict[int, int]) -> None:
        self._known_as = known_as
        missing = [inverse for inverse in self._ends[self._count :] if known_as[inverse.index] == inverse.index]
        self.relations = tuple(self._ends[: self._count] + missing)

    @property
    def held_as(self) -> Int64:
        """int64 [M]: :meth:`known_as` of each relation's inverse."""
        return np.array([self._known_as[self._count + number] for number in range(self._count)], np.int64)

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
