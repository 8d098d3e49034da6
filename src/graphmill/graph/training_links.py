"""The training links of a graph apart from it: what is known already, for whoever scores links from an export alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Self

import numpy as np
import scipy.sparse as sp

from graphmill.graph.sorted_unique import sorted_unique
from graphmill.graph.splits import TRAIN

if TYPE_CHECKING:
    from graphmill.graph.typed_graph import TypedGraph


class TrainingLinks:
    """Per relation the distinct training edges.

    ``outgoing``: CSR [sources, targets] each, an entry other than 0 for each edge; ``offsets``: (first source, first target)
    of a relation among all nodes.
    """

    def __init__(self, outgoing: list[sp.csr_matrix], offsets: list[tuple[int, int]]) -> None:
        self.outgoing, self.offsets = outgoing, offsets

    @classmethod
    def of_graph(cls, graph: TypedGraph) -> Self:
        """Those of a graph."""
        outgoing, offsets = [], []
        for relation in graph.relations:
            source, target = graph.node_type(relation.source), graph.node_type(relation.target)
            edges = graph.edges(relation.index)
            train = np.asarray(edges.split) == TRAIN
            keys = np.asarray(edges.src, np.int64)[train] * target.count + np.asarray(edges.dst)[train]
            keys = sorted_unique(keys)
            ends = keys // max(target.count, 1), keys % max(target.count, 1)
            outgoing.append(sp.csr_matrix((np.ones(len(keys), np.int64), ends), (source.count, target.count)))
            offsets.append((source.offset, target.offset))
        return cls(outgoing, offsets)

    def edges(self) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
        """Of each relation its number, and its training edges' heads and tails as numbers among all nodes, int64 [E]."""
        for number, (matrix, (source, target)) in enumerate(zip(self.outgoing, self.offsets, strict=True)):
            entries = matrix.tocoo()
            yield number, entries.row.astype(np.int64) + source, entries.col.astype(np.int64) + target

    def known(self, relation: int, heads: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Training targets of some heads (local numbers): row of ``heads`` and local target of each."""
        found = self.outgoing[relation][heads].tocoo()
        return found.row.astype(np.int64), found.col.astype(np.int64)

    def degrees(self, relation: int) -> np.ndarray:
        """int64 [targets]: training links into each."""
        matrix = self.outgoing[relation]
        return np.bincount(matrix.indices, minlength=matrix.shape[1])

    def arrays(self) -> dict[str, np.ndarray]:
        """``edges.N.indptr`` int64 [sources + 1] and ``edges.N.targets`` int32 of relation N, local numbers; ``shape.N``
        [2]: sources and targets; ``offsets`` int64 [relations, 2].
        """
        arrays = {"offsets": np.array(self.offsets, np.int64).reshape(-1, 2)}
        for number, matrix in enumerate(self.outgoing):
            arrays[f"edges.{number}.indptr"] = matrix.indptr.astype(np.int64)
            arrays[f"edges.{number}.targets"] = matrix.indices.astype(np.int32)
            arrays[f"shape.{number}"] = np.array(matrix.shape, np.int64)
        return arrays

    @classmethod
    def read(cls, arrays: Mapping[str, np.ndarray]) -> Self:
        """The inverse of :meth:`arrays`."""
        outgoing = []
        for number in range(len(arrays["offsets"])):
            indptr, targets = arrays[f"edges.{number}.indptr"], arrays[f"edges.{number}.targets"]
            shape = tuple(arrays[f"shape.{number}"].tolist())
            outgoing.append(sp.csr_matrix((np.ones(len(targets), np.int64), targets, indptr), shape))
        return cls(outgoing, [(int(a), int(b)) for a, b in arrays["offsets"]])
