"""Numbers the undirected node pairs of a graph's edges, draws those to hold out, in proportion in every relation, and audits
a split of them, in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from graphmill.graph.buckets import Buckets, Ranges
from graphmill.graph.leakage import LeakageReport, audit_pairs
from graphmill.graph.relations import RelationFacts, unit_of
from graphmill.graph.settings import SplitSettings
from graphmill.graph.sorted_unique import sorted_unique
from graphmill.graph.splits import TEST, TRAIN, VALID, pair_hashes
from graphmill.ingest import disk
from graphmill.ingest.disk import ColumnWriter, pieces, zeros

_EVERY = 2**64 - 1
SMALL_RELATION = 10
"""A relation with at least this many pairs has a pair in each held-out split, if each node keeps a training pair."""


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


def draw_splits(pairs: Pairs, keys: npt.NDArray[np.uint64], settings: SplitSettings) -> npt.NDArray[np.uint8]:
    """(num_pairs,) uint8: 0 train, 1 valid, 2 test, drawn pair by pair, in proportion in every relation.

    ``keys`` (num_nodes,) uint64 come from :func:`node_keys`. A relation and its mirror count as one.

    Each pair belongs to the rarest of its relations. There its pairs are ranked by a hash of the two nodes: the lowest
    ``test`` part is the test set, the next ``valid`` part the validation set. The hash does not depend on row order or
    on other pairs. When data is added, the held-out pairs stay the same, except for a few at the borders.

    - A relation with at least :data:`SMALL_RELATION` pairs has at least one pair in each requested split.
    - A pair of a node with itself stays in train.
    - Each node keeps one training pair: its highest-ranked one is never held out. So a relation gets less than its
      share if most of its pairs are the only pair of some node.

    Memory holds a byte or two for each pair, and a few values for each node.
    """
    size = len(pairs)
    rank, usable = zeros(size, np.uint64), np.zeros(size, bool)
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
    for number, facts in enumerate(pairs.facts):
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
            _at_least_one(split, pairs.of_relations(units[unit], usable), free, rank, settings)
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
    wanted = [_shares_of(*sizes, settings) for sizes in zip(all_of[:-1].tolist(), free_of[:-1].tolist(), strict=True)]
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
        near_of = []
        for part in pieces(len(rank), rank):
            near = np.flatnonzero(free[part] & (rank[part] < bound[stratum[part]]))
            near_of.append((stratum[part][near], rank[part][near], part.start + near))
        of, ranks, place = (np.concatenate(column) for column in zip(*near_of, strict=True))
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


def _at_least_one(
    split: npt.NDArray[np.uint8],
    members: npt.NDArray[Any],
    free: npt.NDArray[np.bool_],
    rank: npt.NDArray[Any],
    settings: SplitSettings,
) -> None:
    """Give each requested split the free pair with the lowest rank among ``members`` (mask or numbers), if it has none."""
    for part, wanted in ((TEST, settings.test), (VALID, settings.valid)):
        if wanted and not (split[members] == part).any():
            numbers = np.flatnonzero(members) if members.dtype == bool else members
            candidates = numbers[free[numbers] & (split[numbers] == TRAIN)]
            if len(candidates):
                split[candidates[np.argmin(rank[candidates])]] = part


def _shares_of(pairs: int, candidates: int, settings: SplitSettings) -> tuple[int, int]:
    """Number of ``pairs`` for test and valid. With too few candidates, the two are reduced in proportion."""
    test, valid = round(pairs * settings.test), round(pairs * settings.valid)
    if test + valid > candidates:
        test = round(candidates * test / (test + valid))
        valid = candidates - test
    return test, valid
