"""Holds out node pairs and audits the split if the pairs do not fit in memory.

Pairs, splits and report are the same as those of :mod:`graphmill.graph.splits` and :mod:`graphmill.graph.leakage`. The
arrays are mapped from files and read in pieces. Memory holds a byte or two for each pair, and a few values for each
node.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from graphmill.graph.buckets import Buckets, Ranges
from graphmill.graph.leakage import LeakageReport, Overlap, audit_edges
from graphmill.graph.relations import RelationFacts, unit_of
from graphmill.graph.settings import SplitSettings
from graphmill.graph.sorted_unique import sorted_unique
from graphmill.graph.splits import SMALL_RELATION, TEST, VALID, at_least_one, pair_hashes, shares_of
from graphmill.ingest import disk
from graphmill.ingest.disk import DiskArray, disk_empty, pieces

_EVERY = 2**64 - 1


@dataclass
class EndsOfEdges:
    """The ends of a graph's edges, relation after relation, in local numbers; and the first global number of each type."""

    facts: Sequence[RelationFacts]
    src: npt.NDArray[np.int32]
    dst: npt.NDArray[np.int32]
    offsets: dict[str, int]
    bounds: npt.NDArray[np.int64] = field(init=False)

    def __post_init__(self) -> None:
        self.bounds = np.concatenate(([0], np.cumsum([facts.edges for facts in self.facts]))).astype(np.int64)

    def pieces(self) -> Iterator[tuple[int, slice, npt.NDArray[np.int32], npt.NDArray[np.int32]]]:
        """Yield pieces: the relation's number, the slice of edges (of all edges), and the global numbers of their two
        ends."""
        for number, (facts, (first, last)) in enumerate(zip(self.facts, pairwise(self.bounds.tolist()), strict=True)):
            for part in pieces(last - first, self.src, self.dst):
                place = slice(first + part.start, first + part.stop)
                a = self.src[place] + np.int32(self.offsets[facts.key[0]])
                yield number, place, a, self.dst[place] + np.int32(self.offsets[facts.key[2]])


class LargePairs:
    """The undirected pairs of the edges, in files; the counterpart of :class:`graphmill.graph.splits.Pairs`."""

    def __init__(self, edges: EndsOfEdges, num_nodes: int) -> None:
        self.edges, self.num_nodes, total = edges, num_nodes, len(edges.src)
        self._ranges = Ranges(num_nodes)
        for _, _, a, b in edges.pieces():
            self._ranges.count(np.minimum(a, b))
        self._ranges.cut(disk.BUCKET)
        self._by_low = Buckets(self._ranges.sizes, {"src": np.int32, "dst": np.int32, "edge": np.int64})
        for _, place, a, b in edges.pieces():
            rows = {"src": a, "dst": b, "edge": np.arange(place.start, place.stop)}
            self._by_low.put(self._ranges.of(np.minimum(a, b)), rows)
        self.of_edge, low, high = disk_empty(total, np.int32), DiskArray(np.int32), DiskArray(np.int32)
        for number in range(len(self._ranges)):
            rows = self._by_low.get(number)
            key = np.minimum(rows["src"], rows["dst"]) * np.int64(num_nodes) + np.maximum(rows["src"], rows["dst"])
            distinct = sorted_unique(key)
            self.of_edge[rows["edge"]] = len(low) + np.searchsorted(distinct, key)
            low.append(distinct // num_nodes)
            high.append(distinct % num_nodes)
            disk.let_go(self.of_edge)
        self.low, self.high = low.finish(), high.finish()

    def __len__(self) -> int:
        return len(self.low)

    def audit(self, split: npt.NDArray[np.uint8]) -> LeakageReport:
        """:func:`graphmill.graph.leakage.audit_edges` for these edges with the splits ``split`` (E,)."""
        names = [facts.name for facts in self.edges.facts]
        found = []
        for number in range(len(self._ranges)):
            rows = self._by_low.get(number)
            relation = (np.searchsorted(self.edges.bounds, rows["edge"], side="right") - 1).astype(np.int32)
            found.append(audit_edges(rows["src"], rows["dst"], relation, split[rows["edge"]], names).overlaps)
            disk.let_go(split)
        return LeakageReport(tuple(_joined(parts, names) for parts in zip(*found, strict=True)))

    def of_relations(self, numbers: Sequence[int], usable: npt.NDArray[np.bool_]) -> npt.NDArray[Any]:
        """The distinct usable pairs of some relations: a mask (P,), or their ascending numbers if they are few."""
        spans = [(self.edges.bounds[number], self.edges.bounds[number + 1]) for number in numbers]
        if sum(int(last - first) for first, last in spans) * 32 < len(self):
            few = sorted_unique(np.concatenate([self.of_edge[first:last] for first, last in spans]))
            return few[usable[few]]
        mask = np.zeros(len(self), bool)
        for first, last in spans:
            for part in pieces(int(last - first), self.of_edge):
                mask[self.of_edge[first + part.start : first + part.stop]] = True
        mask &= usable
        return mask


def _joined(parts: Sequence[Overlap], names: Sequence[str]) -> Overlap:
    counts = {name: [0, 0] for name in names}
    for part in parts:
        for name, edges, leaked in part.relations:
            counts[name][0] += edges
            counts[name][1] += leaked
    names_of = ("edges", "leaked", "duplicates", "other_relation", "reversed")
    figures = {figure: sum(int(getattr(part, figure)) for part in parts) for figure in names_of}
    return Overlap(
        parts[0].held_out,
        parts[0].seen,
        **figures,
        pairs=np.concatenate([part.pairs for part in parts]),
        relations=tuple((name, n, k) for name, (n, k) in counts.items() if n),
    )


def draw_large_splits(
    pairs: LargePairs, keys: npt.NDArray[np.uint64], settings: SplitSettings
) -> npt.NDArray[np.uint8]:
    """(num_pairs,) uint8, as :func:`graphmill.graph.splits.draw_splits` draws it. ``keys`` (num_nodes,): hashes of
    nodes. A pair's rank is its hash. The result differs only if two pairs have the same hash, which has a probability
    of about num_pairs² / 2⁶⁵.
    """
    size = len(pairs)
    rank, usable = disk_empty(size, np.uint64), np.zeros(size, bool)
    highest = np.zeros(len(keys), np.uint64)
    for part in pieces(size, rank, pairs.low, pairs.high):
        low, high = np.array(pairs.low[part]), np.array(pairs.high[part])
        rank[part] = mixed = pair_hashes(keys[low], keys[high])
        usable[part] = mine = low != high
        np.maximum.at(highest, low[mine], mixed[mine])
        np.maximum.at(highest, high[mine], mixed[mine])
    free = usable.copy()
    for part in pieces(size, rank, pairs.low, pairs.high):
        free[part] &= (rank[part] != highest[pairs.low[part]]) & (rank[part] != highest[pairs.high[part]])

    units: dict[tuple[str, ...], list[int]] = {}
    for number, facts in enumerate(pairs.edges.facts):
        units.setdefault(unit_of(facts.key), []).append(number)
    counts = {unit: _count(pairs.of_relations(numbers, usable)) for unit, numbers in units.items()}
    order = [unit for unit in sorted(units, key=lambda unit: (-counts[unit], unit)) if counts[unit]]
    none = len(order)
    stratum = np.full(size, none, np.min_scalar_type(none))
    for number, unit in enumerate(order):  # most frequent first, so that a pair ends up with its rarest unit
        stratum[pairs.of_relations(units[unit], usable)] = number
    split = _lowest_of_each(rank, stratum, free, none, settings)
    for unit in reversed(order):
        if counts[unit] >= SMALL_RELATION:
            at_least_one(split, pairs.of_relations(units[unit], usable), free, rank, settings)
    return split


def _count(members: npt.NDArray[Any]) -> int:
    return int(np.count_nonzero(members)) if members.dtype == bool else len(members)


def _lowest_of_each(
    rank: npt.NDArray[np.uint64],
    stratum: npt.NDArray[np.unsignedinteger],
    free: npt.NDArray[np.bool_],
    strata: int,
    settings: SplitSettings,
) -> npt.NDArray[np.uint8]:
    """In each stratum, the free pairs with the lowest ranks are the test split, and the next ones the validation split."""
    all_of, free_of = np.zeros(strata + 1, np.int64), np.zeros(strata + 1, np.int64)
    for part in pieces(len(rank)):
        all_of += np.bincount(stratum[part], minlength=strata + 1)
        free_of += np.bincount(stratum[part][free[part]], minlength=strata + 1)
    wanted = [shares_of(*sizes, settings) for sizes in zip(all_of[:-1].tolist(), free_of[:-1].tolist(), strict=True)]
    split = np.zeros(len(rank), np.uint8)
    # Ranks are uniform over 64 bits, so choose a bound with slightly more pairs below it than are wanted.
    slack = 1.0
    missing = list(range(strata))
    while missing:
        bound = np.zeros(strata + 1, np.uint64)
        for number in missing:
            held, candidates = sum(wanted[number]), int(free_of[number])
            share = (held + slack * (6 * held**0.5 + 16)) / max(candidates, 1)
            bound[number] = _EVERY if share >= 1 else int(share * 2**64)
        found = []
        for part in pieces(len(rank), rank):
            near = np.flatnonzero(free[part] & (rank[part] < bound[stratum[part]]))
            found.append((stratum[part][near], rank[part][near], part.start + near))
        of, ranks, place = (np.concatenate(column) for column in zip(*found, strict=True))
        place = place[np.lexsort((ranks, of))]
        ends = np.cumsum(np.bincount(of, minlength=strata + 1))
        again = []
        for number in missing:
            mine = place[int(ends[number - 1]) if number else 0 : int(ends[number])]
            test, valid = wanted[number]
            if len(mine) < test + valid and bound[number] != _EVERY:
                again.append(number)
                continue
            split[mine[:test]] = TEST
            split[mine[test : test + valid]] = VALID
        missing, slack = again, 4 * slack
    return split
