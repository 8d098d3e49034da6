"""The training links of a graph, stored apart from it. Scoring from an export alone needs them to mark known links."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Self

import numpy as np
import scipy.sparse as sp

from graphmill.graph.sorted_unique import sorted_unique
from graphmill.graph.splits import TRAIN
from graphmill.graph.typed_graph import TypedGraph


class TrainingLinks:
    """The distinct training edges of each relation.

    ``outgoing``: for each relation a CSR matrix [sources, targets] with a nonzero entry for each edge. ``offsets``: for
    each relation the global numbers of its first source and first target.
    """

    def __init__(self, outgoing: list[sp.csr_matrix], offsets: list[tuple[int, int]]) -> None:
        self.outgoing, self.offsets = outgoing, offsets

    @classmethod
    def of_graph(cls, graph: TypedGraph) -> Self:
        """The training links of a graph."""
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
        """Yield for each relation its number, and the heads and tails of its training edges, int64 [E] global numbers."""
        for number, (matrix, (source, target)) in enumerate(zip(self.outgoing, self.offsets, strict=True)):
            entries = matrix.tocoo()
            yield number, entries.row.astype(np.int64) + source, entries.col.astype(np.int64) + target

    def known(self, relation: int, heads: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Training targets of some heads (local numbers): for each link, the row of ``heads`` and the local target."""
        found = self.outgoing[relation][heads].tocoo()
        return found.row.astype(np.int64), found.col.astype(np.int64)

    def degrees(self, relation: int) -> np.ndarray:
        """int64 [targets]: number of training links into each target."""
        matrix = self.outgoing[relation]
        return np.bincount(matrix.indices, minlength=matrix.shape[1])

    def arrays(self) -> dict[str, np.ndarray]:
        """All relations as compact arrays; sources without a link take no space.

        ``offsets`` int64 [relations, 2]: as :attr:`offsets`. ``edges.shapes`` int64 [relations, 2]: numbers of sources
        and targets. ``edges.rows`` int64 [relations]: number of sources with a link. ``edges.sources`` and
        ``edges.counts`` int32: local number and number of links of each such source. ``edges.targets`` int32: the
        links' local targets.
        """
        none = np.zeros(0, np.int32)
        links = [np.diff(matrix.indptr) for matrix in self.outgoing]
        sources = [np.flatnonzero(counts) for counts in links]
        return {
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
    def read(cls, arrays: Mapping[str, np.ndarray]) -> Self:
        """The inverse of :meth:`arrays`. It also reads the earlier format, with separate arrays for each relation."""
        read = _read if "edges.targets" in arrays else _read_by_relation
        outgoing = [
            sp.csr_matrix((np.ones(len(targets), np.int64), targets, indptr), (sources, count))
            for indptr, targets, (sources, count) in read(arrays)
        ]
        return cls(outgoing, [(int(a), int(b)) for a, b in arrays["offsets"]])


def _read(arrays: Mapping[str, np.ndarray]) -> Iterator[tuple[np.ndarray, np.ndarray, list[int]]]:
    """Yield for each relation its indptr, its targets, and its numbers of sources and targets."""
    row = link = 0
    for rows, (sources, count) in zip(arrays["edges.rows"].tolist(), arrays["edges.shapes"].tolist(), strict=True):
        counts = np.zeros(sources + 1, np.int64)
        counts[1 + arrays["edges.sources"][row : row + rows]] = arrays["edges.counts"][row : row + rows]
        indptr = np.cumsum(counts)
        yield indptr, arrays["edges.targets"][link : link + indptr[-1]], [sources, count]
        row, link = row + rows, link + int(indptr[-1])


def _read_by_relation(arrays: Mapping[str, np.ndarray]) -> Iterator[tuple[np.ndarray, np.ndarray, list[int]]]:
    """Reads the earlier format: ``edges.N.indptr`` [sources + 1], ``edges.N.targets`` and ``shape.N`` [2] for relation N."""
    for number in range(len(arrays["offsets"])):
        yield arrays[f"edges.{number}.indptr"], arrays[f"edges.{number}.targets"], arrays[f"shape.{number}"].tolist()
