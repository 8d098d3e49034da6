"""Short paths of a version's training edges that join a head with a predicted tail: why the link is not out of the blue.

Edges of all relations are walked in either direction. The best paths have the lowest product of the degrees of the nodes
between, as in degree-weighted path counts (Himmelstein and Baranzini 2015): what leads over hubs joins everything.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from graphmill.systems.hgt.spectral import NeighbourSums

Int64 = NDArray[np.int64]
Step = tuple[int, int, bool]
MOST_EDGES = 200_000
"""Edges of a head's neighbours that are looked at, those of low degree first: some milliseconds."""


@dataclass(frozen=True)
class TrainedEdges:
    """Every training edge at both of its ends: ``indptr`` int64 (n + 1); per entry ``there``, ascending within a node,
    ``relation`` int32, and ``forward``: whether the node is the relation's source. Rows are those of the export.
    """

    indptr: Int64
    there: Int64
    relation: NDArray[np.int32]
    forward: NDArray[np.bool_]

    @classmethod
    def of(cls, sums: NeighbourSums) -> TrainedEdges:
        """The edges that a scorer has."""
        here, there, relation, forward = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)], [], []
        nodes = 0
        for number, (matrix, (source, target)) in enumerate(zip(sums.outgoing, sums.offsets, strict=True)):
            entries = matrix.tocoo()
            heads, tails = entries.row.astype(np.int64) + source, entries.col.astype(np.int64) + target
            here += [heads, tails]
            there += [tails, heads]
            relation.append(np.full(2 * len(heads), number, np.int32))
            forward.append(np.arange(2 * len(heads)) < len(heads))
            nodes = max(nodes, source + matrix.shape[0], target + matrix.shape[1])
        all_here, all_there = np.concatenate(here), np.concatenate(there)
        order = np.lexsort((all_there, all_here))
        indptr = np.concatenate([[0], np.cumsum(np.bincount(all_here, minlength=nodes))]).astype(np.int64)
        numbers = np.concatenate(relation) if relation else np.zeros(0, np.int32)
        ways = np.concatenate(forward) if forward else np.zeros(0, bool)
        return cls(indptr, all_there[order], numbers[order], ways[order])

    def paths(self, head: int, tail: int, count: int) -> list[list[Step]]:
        """The best ``count`` paths of length 2 or 3, each as steps (relation, node that it leads to, forward)."""
        near_head, near_tail = np.unique(self._near(head)), np.unique(self._near(tail))
        near_head = near_head[(near_head != head) & (near_head != tail)]
        degrees = np.diff(self.indptr)
        both = near_head[np.isin(near_head, near_tail)]
        found: list[tuple[float, tuple[int, ...]]] = [(float(degrees[a]), (head, int(a), tail)) for a in both]
        walked = near_head[np.argsort(degrees[near_head], kind="stable")]
        walked = walked[np.cumsum(degrees[walked]) <= MOST_EDGES]
        if len(walked):
            firsts = np.repeat(walked, degrees[walked])
            seconds = np.concatenate([self._near(int(a)) for a in walked])
            kept = np.isin(seconds, near_tail) & (seconds != head) & (seconds != tail) & (seconds != firsts)
            pairs = np.unique(np.stack([firsts[kept], seconds[kept]], axis=1), axis=0)
            weights = degrees[pairs[:, 0]].astype(np.float64) * degrees[pairs[:, 1]]
            best = np.argsort(weights, kind="stable")[:count]
            found += [(float(weights[i]), (head, int(pairs[i, 0]), int(pairs[i, 1]), tail)) for i in best]
        found.sort(key=lambda each: (each[0], len(each[1]), each[1]))
        return [[self._step(a, b) for a, b in pairwise(nodes)] for _, nodes in found[:count]]

    def _near(self, node: int) -> Int64:
        return self.there[self.indptr[node] : self.indptr[node + 1]] if node + 1 < len(self.indptr) else self.there[:0]

    def _step(self, here: int, there: int) -> Step:
        place = int(self.indptr[here] + np.searchsorted(self._near(here), there))
        return int(self.relation[place]), there, bool(self.forward[place])
