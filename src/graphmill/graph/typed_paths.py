"""Counts paths of one or two typed edges between two nodes. Paths through nodes with many edges count less.

An edge of relation r from u to v counts 1 / √(out-degree of u in r · in-degree of v in r), and a path the product of its
edges: degree-weighted path counts (Himmelstein & Baranzini 2015), at a damping of 0.5. :func:`similar` compares whole
neighbourhoods of two nodes, by sparse products in bounded memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Literal

import numpy as np
import scipy.sparse as sp

from graphmill.graph.training_links import TrainingLinks

Kind = tuple[int, int]
"""A node type, given by its first node and its number of nodes."""
NONE = -1
"""Stands for no second step: the path has one edge."""
MOST_PATHS = 20_000.0
"""Largest mean number of paths per head. A channel with more paths reaches almost every target, so it does not
distinguish targets."""


_Adjacency = tuple[np.ndarray, np.ndarray, np.ndarray]
"""All steps out of (or into) every node, as CSR: pointers, the numbers of the steps, and the nodes at the other end."""


def _entries(of: _Adjacency, node: int) -> tuple[np.ndarray, np.ndarray]:
    indptr, steps, others = of
    entries = slice(indptr[node], indptr[node + 1])
    return steps[entries], others[entries]


class TypedPaths:
    """Steps along relations. Step r < R goes from relation r's sources to its targets. Step R + r goes back; it exists
    only if no relation holds the same edges in reverse.

    ``kinds``: the source and target type of each step.
    """

    def __init__(self, links: TrainingLinks) -> None:
        self.relations = len(links.outgoing)
        self.kinds: dict[int, tuple[Kind, Kind]] = {}
        self._plain: dict[int, sp.csr_matrix] = {}
        for number, (matrix, (first, second)) in enumerate(zip(links.outgoing, links.offsets, strict=True)):
            self._plain[number] = links.matrix(number)
            self.kinds[number] = (first, matrix.shape[0]), (second, matrix.shape[1])
        for number in range(self.relations):
            turned = self._plain[number].T.tocsr()
            source, target = self.kinds[number]
            if not any(kinds == (target, source) and _same(turned, self._plain[n]) for n, kinds in self._held()):
                self._plain[self.relations + number] = turned
                self.kinds[self.relations + number] = (target, source)
        self._weighted: dict[int, sp.csr_matrix] = {}
        self._edges: dict[int, tuple[np.ndarray, np.ndarray]] = {}

    def _held(self) -> list[tuple[int, tuple[Kind, Kind]]]:
        return [(n, kinds) for n, kinds in self.kinds.items() if n < self.relations]

    def plain(self, number: int) -> sp.csr_matrix:
        """float32 [nodes of the first type, nodes of the second]: the edges of a step, each with weight 1."""
        return self._plain[number]

    def step(self, number: int) -> sp.csr_matrix:
        """float32 [nodes of the first type, nodes of the second]: the weighted edges of a step."""
        if number not in self._weighted:
            matrix = self._plain[number]
            rows, columns = (1.0 / np.sqrt(np.maximum(edges, 1)) for edges in self._degrees(number))
            data = np.repeat(rows, np.diff(matrix.indptr)) * columns[matrix.indices]
            self._weighted[number] = sp.csr_matrix(
                (data.astype(np.float32), matrix.indices, matrix.indptr), matrix.shape
            )
        return self._weighted[number]

    def between(self, relation: int) -> Iterator[tuple[int, int]]:
        """The channels (step, :data:`NONE`) and (step, step) from a relation's sources to its targets.

        A single step with exactly the relation's own edges is left out, because it is no evidence for them. So are
        channels with more than :data:`MOST_PATHS` paths per head.
        """
        source, target = self.kinds[relation]
        for first, (start, middle) in self.kinds.items():
            if start != source:
                continue
            seconds = [second for second, kinds in self.kinds.items() if kinds == (middle, target)]
            for second in [NONE, *seconds] if middle == target else seconds:
                if self._may_tell(relation, (first, second)):
                    yield first, second

    def common(self, relation: int, heads: np.ndarray, tails: np.ndarray, most: int) -> list[tuple[int, int]]:
        """At most ``most`` channels that join more of the given links (local numbers) than of the same heads with
        shuffled tails.

        It does not enumerate all pairs of steps, because a graph with many relations has too many.
        """
        counts: dict[tuple[int, int], float] = {}
        allowed: dict[tuple[int, int], bool] = {}
        for sign, ends in ((1.0, tails), (-1.0, np.roll(tails, 1))):
            for head, tail in zip(heads, ends, strict=True):
                for channel in self._joining(relation, int(head), int(tail)):
                    if channel not in allowed:
                        allowed[channel] = self._may_tell(relation, channel)
                    if allowed[channel]:
                        counts[channel] = counts.get(channel, 0.0) + sign
        return sorted((c for c, n in counts.items() if n > 1), key=lambda c: (-counts[c], c))[:most]

    def _may_tell(self, relation: int, channel: tuple[int, int]) -> bool:
        if channel[1] == NONE:
            return not _same(self._plain[channel[0]], self._plain[relation])
        return self._paths_a_head(*channel) <= MOST_PATHS

    def _joining(self, relation: int, head: int, tail: int) -> set[tuple[int, int]]:
        (first, _), (second, _) = self.kinds[relation]
        steps, middles = _entries(self._from, first + head)
        back, ends = _entries(self._to, second + tail)
        direct = {(int(s), NONE) for s in steps[middles == second + tail]}
        order = np.argsort(ends, kind="stable")
        ends, back = ends[order], back[order]
        begin, stop = np.searchsorted(ends, middles), np.searchsorted(ends, middles, side="right")
        return direct | {
            (int(s), int(b)) for s, i, j in zip(steps, begin, stop, strict=True) if j > i for b in np.unique(back[i:j])
        }

    @cached_property
    def _from(self) -> _Adjacency:
        return self._adjacency(turned=False)

    @cached_property
    def _to(self) -> _Adjacency:
        return self._adjacency(turned=True)

    def _adjacency(self, *, turned: bool) -> _Adjacency:
        rows, others, steps = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)], [np.zeros(0, np.int32)]
        for number, ((first, _), (second, _)) in self.kinds.items():
            entries = self._plain[number].tocoo()
            ends = entries.row.astype(np.int64) + first, entries.col.astype(np.int64) + second
            rows.append(ends[turned])
            others.append(ends[not turned])
            steps.append(np.full(entries.nnz, number, np.int32))
        row = np.concatenate(rows)
        order = np.argsort(row, kind="stable")
        nodes = max((first + count for kinds in self.kinds.values() for first, count in kinds), default=0)
        indptr = np.concatenate([[0], np.cumsum(np.bincount(row, minlength=nodes))])
        return indptr, np.concatenate(steps)[order], np.concatenate(others)[order]

    def _paths_a_head(self, first: int, second: int) -> float:
        ahead, back = self._degrees(first)[1], self._degrees(second)[0]
        return float(ahead @ back) / max(self._plain[first].shape[0], 1)

    def _degrees(self, number: int) -> tuple[np.ndarray, np.ndarray]:
        """float64: number of edges of a step out of each node of its first type, and into each node of its second type."""
        if number not in self._edges:
            matrix = self._plain[number]
            ends = np.bincount(matrix.indices, minlength=matrix.shape[1])
            self._edges[number] = np.diff(matrix.indptr).astype(np.float64), ends.astype(np.float64)
        return self._edges[number]


def _same(one: sp.csr_matrix, other: sp.csr_matrix) -> bool:
    return (
        one.shape == other.shape
        and one.nnz == other.nnz
        and np.array_equal(one.indptr, other.indptr)
        and np.array_equal(one.indices, other.indices)
    )


BLOCK_BYTES = 64 * 2**20
"""Memory for one sparse product."""
_BYTES_PER_ENTRY = 12

Side = Literal["both", "source", "target"]


def similar(
    sources: sp.csr_matrix, theirs: sp.csr_matrix, links: sp.csr_matrix, heads: np.ndarray, side: Side = "both"
) -> dict[Side, np.ndarray]:
    """Scores of all targets, float32 [B, targets], by "source", by "target", or by both, as ``side`` says.

    "source": the sum of the similarities of the candidate's known sources to the head. "target": the sum of the
    similarities of the head's known targets to the candidate. ``sources`` and ``theirs``: the vectors of sources and
    targets; their dot products are the similarities. ``links`` float32 [sources, targets]: 1 for a known link.
    ``heads``: rows of ``sources``.
    """
    scores: dict[Side, np.ndarray] = {}
    turned = {"source": sources.T.tocsr(), "target": theirs.T.tocsr()}
    for name in ("source", "target") if side == "both" else (side,):
        out = np.zeros((len(heads), theirs.shape[0]), np.float32)
        for part in blocks(len(heads), max(sources.shape[0], theirs.shape[0])):
            mine = heads[part]
            if name == "source":
                out[part] = ((sources[mine] @ turned["source"]) @ links).toarray()
            else:
                out[part] = ((links[mine] @ theirs) @ turned["target"]).toarray()
        scores[name] = out
    return scores


def blocks(rows: int, columns: int) -> Iterator[slice]:
    """Slices of rows, small enough that a sparse product with ``columns`` columns stays within :data:`BLOCK_BYTES`."""
    size = max(1, BLOCK_BYTES // (_BYTES_PER_ENTRY * max(columns, 1)))
    for start in range(0, rows, size):
        yield slice(start, min(start + size, rows))
