"""The training links of a graph, stored apart from it. Scoring from an export alone needs them to mark known links."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Self

import numpy as np
import scipy.sparse as sp

from graphmill.arrays import array_of
from graphmill.errors import InputError
from graphmill.graph.interactions import largest, to_rows
from graphmill.graph.splits import TRAIN
from graphmill.graph.typed_graph import NodeType, TypedGraph


class TrainingLinks:
    """The distinct training edges of each relation.

    ``outgoing``: for each relation a CSR matrix [sources, targets] with a nonzero entry for each edge. ``offsets``: for
    each relation the global numbers of its first source and first target. ``weights``: for each relation None, or the
    relative weights of its edges, float32 in the order of ``outgoing``.
    """

    def __init__(
        self,
        outgoing: list[sp.csr_matrix],
        offsets: list[tuple[int, int]],
        weights: list[np.ndarray | None] | None = None,
    ) -> None:
        self.outgoing, self.offsets, self.weights = outgoing, offsets, weights or [None] * len(outgoing)

    @classmethod
    def of_graph(cls, graph: TypedGraph) -> Self:
        """The training links of a graph."""
        outgoing, offsets, weights = [], [], []
        for relation in graph.relations:
            source, target = graph.node_type(relation.source), graph.node_type(relation.target)
            edges, ends = graph.edges(relation), graph.training_edges(relation)
            links, relative = to_rows(*ends, source.count, target.count), edges.relative_weights()
            if relative is not None:
                relative = largest(links, target.count, *ends, relative[np.asarray(edges.split) == TRAIN])
            weights.append(relative)
            entries = np.ones(len(links), np.int64), links.columns, links.indptr
            outgoing.append(sp.csr_matrix(entries, (source.count, target.count)))
            offsets.append((source.offset, target.offset))
        return cls(outgoing, offsets, weights)

    def edges(self) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
        """Yield for each relation its number, and the heads and tails of its training edges, int64 [E] global numbers."""
        for number, (matrix, (source, target)) in enumerate(zip(self.outgoing, self.offsets, strict=True)):
            entries = matrix.tocoo()
            yield number, entries.row.astype(np.int64) + source, entries.col.astype(np.int64) + target

    def ends(self, relation: int) -> tuple[NodeType, NodeType]:
        """The sources and targets of a relation, types that are named by their numbers."""
        ends = zip(self.offsets[relation], self.outgoing[relation].shape, strict=True)
        source, target = (NodeType(f"{first}+{count}", count, first) for first, count in ends)
        return source, target

    def matrix(self, relation: int) -> sp.csr_matrix:
        """float32 [sources, targets]: 1 for each training link."""
        links = self.outgoing[relation]
        return sp.csr_matrix((np.ones(links.nnz, np.float32), links.indices, links.indptr), links.shape)

    def known(self, relation: int, heads: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Training targets of some heads (local numbers): for each link, the row of ``heads`` and the local target."""
        entries = self.outgoing[relation][heads].tocoo()
        return entries.row.astype(np.int64), entries.col.astype(np.int64)

    def degrees(self, relation: int) -> np.ndarray:
        """int64 [targets]: number of training links into each target."""
        matrix = self.outgoing[relation]
        return np.bincount(matrix.indices, minlength=matrix.shape[1])

    def arrays(self, *, weighted: bool = False) -> dict[str, np.ndarray]:
        """All relations as compact arrays; sources without a link take no space.

        ``offsets`` int64 [relations, 2]: as :attr:`offsets`. ``edges.shapes`` int64 [relations, 2]: numbers of sources
        and targets. ``edges.rows`` int64 [relations]: number of sources with a link. ``edges.sources`` and
        ``edges.counts`` int32: local number and number of links of each such source. ``edges.targets`` int32: the
        links' local targets. With ``weighted`` also ``edges.weights`` float32: the links' relative weights.
        """
        none = np.zeros(0, np.int32)
        links = [np.diff(matrix.indptr) for matrix in self.outgoing]
        sources = [np.flatnonzero(counts) for counts in links]
        strengths = [np.ones(m.nnz) if w is None else w for m, w in zip(self.outgoing, self.weights, strict=True)]
        return ({"edges.weights": np.concatenate([none, *strengths]).astype(np.float32)} if weighted else {}) | {
            "offsets": np.array(self.offsets, np.int64).reshape(-1, 2),
            "edges.shapes": np.array([matrix.shape for matrix in self.outgoing], np.int64).reshape(-1, 2),
            "edges.rows": np.array([len(rows) for rows in sources], np.int64),
            "edges.sources": np.concatenate([none, *sources]).astype(np.int32),
            "edges.counts": np.concatenate([none, *(n[rows] for n, rows in zip(links, sources, strict=True))]).astype(
                np.int32
            ),
            "edges.targets": np.concatenate([none, *(matrix.indices for matrix in self.outgoing)]).astype(np.int32),
        }

    @classmethod
    def read(cls, arrays: Mapping[str, np.ndarray], nodes: int) -> Self:
        """The inverse of :meth:`arrays`, for a graph of ``nodes`` nodes.

        Raises :class:`InputError` for arrays that are not those of such a graph: compiled code reads them unchecked.
        """
        offsets, shapes = (array_of(arrays, name, (None, 2), "i") for name in ("offsets", "edges.shapes"))
        rows = array_of(arrays, "edges.rows", (len(offsets),), "i")
        sources, counts, targets = (
            array_of(arrays, f"edges.{name}", (None,), "i") for name in ("sources", "counts", "targets")
        )
        inside = len(shapes) == len(offsets) and offsets.min(initial=0) >= 0 and shapes.min(initial=0) >= 0
        if not inside or (offsets > nodes).any() or (shapes > nodes - offsets).any():
            raise InputError(f"its relations are not between {nodes} nodes")
        sizes = counts.min(initial=1) > 0 and rows.min(initial=0) >= 0 and (rows <= len(sources)).all()
        if not sizes or not rows.sum() == len(sources) == len(counts) or (counts > len(targets)).any():
            raise InputError("its numbers of links do not agree with each other")
        strengths = None
        if "edges.weights" in arrays:
            strengths = array_of(arrays, "edges.weights", (len(targets),), "f")
            if not np.isfinite(strengths).all() or strengths.min(initial=0) < 0:
                raise InputError("a weight of its links is not a number of 0 or more")
        outgoing, weights, row, link = [], [], 0, 0
        for sources_of, (count, others) in zip(rows.tolist(), shapes.tolist(), strict=True):
            heads, links = sources[row : row + sources_of], counts[row : row + sources_of]
            if sources_of and (heads[0] < 0 or heads[-1] >= count or (np.diff(heads) <= 0).any()):
                raise InputError("the sources of its links are not those of their relation")
            indptr = np.zeros(count + 1, np.int64)
            indptr[1 + heads] = links
            np.cumsum(indptr, out=indptr)
            tails = targets[link : link + int(indptr[-1])]
            if len(tails) < indptr[-1] or tails.min(initial=0) < 0 or tails.max(initial=-1) >= others:
                raise InputError("the targets of its links are not those of their relation")
            outgoing.append(sp.csr_matrix((np.ones(len(tails), np.int64), tails, indptr), (count, others)))
            weights.append(None if strengths is None else strengths[link : link + len(tails)])
            row, link = row + sources_of, link + int(indptr[-1])
        if link != len(targets) or not all(matrix.has_canonical_format for matrix in outgoing):
            raise InputError("the targets of its links are not in order")
        return cls(outgoing, [(int(a), int(b)) for a, b in offsets], weights)
