"""The training edges of a graph for baselines: sparse, by relation, and always in both directions.

If the relations of a graph have their reverses, the out-edges of a node are all its edges. A graph of triples lacks
reverses: there an inverse relation is added for each missing one, with ConvE's numbering.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
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


class TrainEdges:
    """Typed training edges of a graph with M relations: 0 … M − 1, and their inverses M … 2M − 1.

    ``held_as`` int64 [M]: the graph's relation that holds the reverses of each, or the number of its inverse if there is
    none.
    """

    def __init__(self, graph: TypedGraph) -> None:
        ends = [(graph.node_type(each.source), graph.node_type(each.target)) for each in graph.relations]
        self._take(graph.node_types, ends, TrainingLinks.of_graph(graph))
        held: dict[tuple[tuple[NodeType, NodeType], bytes], int] = {}
        for number in range(self._count):
            held.setdefault((self._ends[number], self._digest(number)), number)
        inverses = range(self._count, 2 * self._count)
        self.held_as = np.array([held.get((self._ends[n], self._digest(n)), n) for n in inverses], np.int64)

    @classmethod
    def of_links(cls, links: TrainingLinks, held_as: np.ndarray) -> Self:
        """Those of links that are stored apart from their graph.

        Raises :class:`InputError` if ``held_as`` names relations of other ends.
        """
        edges, count = cls.__new__(cls), len(links.outgoing)
        ends = [links.ends(number) for number in range(count)]
        edges._take(tuple(dict.fromkeys(each for pair in ends for each in pair)), ends, links)
        for number, held in enumerate(held_as.tolist()):
            if held != count + number and not (0 <= held < count and ends[held] == ends[number][::-1]):
                raise InputError(f"relation {held} does not hold the reverses of relation {number}")
        edges.held_as = held_as.astype(np.int64)
        return edges

    def _take(
        self, types: tuple[NodeType, ...], ends: Sequence[tuple[NodeType, NodeType]], links: TrainingLinks
    ) -> None:
        self.node_types, self._links, self._count = types, links, len(ends)
        self.num_nodes = max((t.offset + t.count for t in types), default=0)
        self._ends = [*ends, *((target, source) for source, target in ends)]
        self._matrices: dict[int, sp.csr_matrix] = {}

    @cached_property
    def relations(self) -> tuple[int, ...]:
        """Those of the graph, and an inverse for each whose reverse the graph does not hold."""
        missing = (self._count + n for n, held in enumerate(self.held_as.tolist()) if held == self._count + n)
        return (*range(self._count), *missing)

    @property
    def reversed(self) -> bool:
        """Whether the graph holds the reverse of every relation."""
        return len(self.relations) == self._count

    def ends(self, relation: int) -> tuple[NodeType, NodeType]:
        """The types of a relation's sources and targets."""
        return self._ends[relation]

    def edges(self, relation: int) -> tuple[Int64, Int64]:
        """Sources and targets (local numbers) of the distinct training edges, by (source, target) of the relation itself."""
        entries = self._links.outgoing[relation % self._count].tocoo()
        src, dst = entries.row.astype(np.int64), entries.col.astype(np.int64)
        return (src, dst) if relation < self._count else (dst, src)

    def matrix(self, relation: int) -> sp.csr_matrix:
        """float32 [sources, targets]: 1 for each training edge; cached."""
        if relation not in self._matrices:
            matrix = self._links.matrix(relation % self._count)
            self._matrices[relation] = matrix if relation < self._count else matrix.T.tocsr()
        return self._matrices[relation]

    def known_as(self, relation: int) -> int:
        """The graph's relation with the edges of an inverse; the inverse itself if there is none."""
        return relation if relation < self._count else int(self.held_as[relation - self._count])

    def _digest(self, relation: int) -> bytes:
        """Of the pairs of a relation: equal for equal sets of pairs."""
        src, dst = self.edges(relation)
        return hashlib.blake2b(np.sort(src * self._ends[relation][1].count + dst).tobytes()).digest()
