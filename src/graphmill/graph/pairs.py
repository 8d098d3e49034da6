"""Numbers the undirected node pairs of a graph's edges, and audits a split of them, in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from graphmill.graph.buckets import Buckets, Ranges
from graphmill.graph.leakage import LeakageReport, audit_pairs
from graphmill.graph.relations import RelationFacts
from graphmill.graph.sorted_unique import sorted_unique
from graphmill.ingest import disk
from graphmill.ingest.disk import ColumnWriter, pieces, zeros


class Pairs:
    """The undirected node pairs of a graph's edges, numbered in ascending order of (low, high).

    ``facts``: of the relations, whose edges follow each other, between ``bounds``; ``src``, ``dst``: their ends, in local
    numbers; ``offsets``: the first global number of each type. ``of_edge`` (E,) int32 is each edge's pair; ``low``, ``high``
    (num_pairs,) int32 are the pair's global node numbers, low ≤ high.
    """

    def __init__(
        self,
        facts: Sequence[RelationFacts],
        src: npt.NDArray[np.int32],
        dst: npt.NDArray[np.int32],
        offsets: Mapping[str, int],
        num_nodes: int,
    ) -> None:
        self.facts, self._src, self._dst, self._offsets = facts, src, dst, offsets
        self.bounds: list[int] = np.cumsum([0, *(each.edges for each in facts)]).tolist()
        ranges = Ranges(num_nodes)
        for _, _, a, b in self.edges():
            ranges.count(np.minimum(a, b))
        by_low = Buckets(ranges.cut(disk.BUCKET), {"src": np.int32, "dst": np.int32, "edge": np.int64})
        for _, place, a, b in self.edges():
            rows = {"src": a, "dst": b, "edge": np.arange(place.start, place.stop)}
            by_low.put(ranges.of(np.minimum(a, b)), rows)
        self.of_edge, low, high = zeros(len(src), np.int32), ColumnWriter(np.int32), ColumnWriter(np.int32)
        for number in range(len(ranges.sizes)):
            rows = by_low.get(number)
            key = np.minimum(rows["src"], rows["dst"]) * np.int64(num_nodes) + np.maximum(rows["src"], rows["dst"])
            distinct = sorted_unique(key)
            self.of_edge[rows["edge"]] = len(low) + np.searchsorted(distinct, key)
            low.append(distinct // num_nodes)
            high.append(distinct % num_nodes)
            disk.let_go(self.of_edge)
        self.low, self.high = low.finish(), high.finish()

    def edges(self) -> Iterator[tuple[int, slice, npt.NDArray[np.int32], npt.NDArray[np.int32]]]:
        """Yield pieces: the relation's number, the slice of edges (of all edges), and the global numbers of their two
        ends."""
        for number, (facts, (first, last)) in enumerate(zip(self.facts, pairwise(self.bounds), strict=True)):
            for part in pieces(last - first, self._src, self._dst):
                place = slice(first + part.start, first + part.stop)
                a = self._src[place] + np.int32(self._offsets[facts.key[0]])
                yield number, place, a, self._dst[place] + np.int32(self._offsets[facts.key[2]])

    def __len__(self) -> int:
        return len(self.low)

    def audit(self, split: npt.NDArray[np.uint8]) -> LeakageReport:
        """:func:`graphmill.graph.leakage.audit_pairs` of the edges with the splits ``split`` (E,)."""
        names = [facts.name for facts in self.facts]
        return audit_pairs(self.of_edge, (self.low, self.high), split, names, self.bounds)

    def of_relations(self, numbers: Sequence[int], usable: npt.NDArray[np.bool_]) -> npt.NDArray[Any]:
        """The distinct usable pairs of some relations: a mask (P,), or their ascending numbers if they are few."""
        spans = [(self.bounds[number], self.bounds[number + 1]) for number in numbers]
        if sum(last - first for first, last in spans) * 32 < len(self):
            few = sorted_unique(np.concatenate([self.of_edge[first:last] for first, last in spans]))
            return few[usable[few]]
        mask = np.zeros(len(self), bool)
        for first, last in spans:
            for part in pieces(last - first, self.of_edge):
                mask[self.of_edge[first + part.start : first + part.stop]] = True
        mask &= usable
        return mask
