"""Numbers the undirected node pairs of a graph's edges, and draws those to hold out, in proportion in every relation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from graphmill.graph.relations import RelationFacts, unit_of
from graphmill.graph.settings import SplitSettings
from graphmill.graph.sorted_unique import sorted_unique
from graphmill.graph.splits import TEST, TRAIN, VALID, pair_hashes

_EVERY = np.uint64(2**64 - 1)

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
        keys = [np.minimum(a, b) * np.int64(num_nodes) + np.maximum(a, b) for a, b in self.ends()]
        distinct = sorted_unique(np.concatenate(keys))
        self.of_edge = np.concatenate([np.searchsorted(distinct, key).astype(np.int32) for key in keys])
        self.low, self.high = (distinct // num_nodes).astype(np.int32), (distinct % num_nodes).astype(np.int32)

    def __len__(self) -> int:
        return len(self.low)

    def ends(self) -> Iterator[tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]]:
        """The global numbers of the sources and targets of each relation's edges."""
        for facts, (first, last) in zip(self.facts, pairwise(self.bounds), strict=True):
            source, target = (np.int32(self._offsets[kind]) for kind in (facts.key[0], facts.key[2]))
            yield self._src[first:last] + source, self._dst[first:last] + target

    def of_relations(self, numbers: Sequence[int]) -> npt.NDArray[np.int32]:
        """The distinct pairs of some relations, ascending."""
        return sorted_unique(np.concatenate([self.of_edge[self.bounds[n] : self.bounds[n + 1]] for n in numbers]))


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
    """
    rank, usable = pair_hashes(keys[pairs.low], keys[pairs.high]), pairs.low != pairs.high
    highest = np.zeros(len(keys), np.uint64)
    for ends in (pairs.low, pairs.high):
        np.maximum.at(highest, ends[usable], rank[usable])
    free = usable & (rank != highest[pairs.low]) & (rank != highest[pairs.high])

    units: dict[tuple[str, ...], list[int]] = {}
    for number, facts in enumerate(pairs.facts):
        units.setdefault(unit_of(facts.key), []).append(number)
    members = {unit: pairs.of_relations(numbers) for unit, numbers in units.items()}
    members = {unit: numbers[usable[numbers]] for unit, numbers in members.items()}
    order = sorted((unit for unit in members if len(members[unit])), key=lambda unit: (-len(members[unit]), unit))
    stratum = np.full(len(pairs), len(order), np.min_scalar_type(len(order)))
    for number, unit in enumerate(order):  # most frequent first, so that a pair ends up with its rarest unit
        stratum[members[unit]] = number
    split = _lowest_of_each(rank, stratum, free, len(order), settings)
    for unit in reversed(order):
        if len(members[unit]) >= SMALL_RELATION:
            _at_least_one(split, members[unit], free, rank, settings)
    return split


def _lowest_of_each(
    rank: npt.NDArray[np.uint64],
    stratum: npt.NDArray[np.unsignedinteger],
    free: npt.NDArray[np.bool_],
    strata: int,
    settings: SplitSettings,
) -> npt.NDArray[np.uint8]:
    """In each stratum, the free pairs with the lowest ranks are the test split, and the next ones the validation split."""
    split = np.full(len(rank), TRAIN, np.uint8)
    pairs_of = np.bincount(stratum, minlength=strata)
    place = np.flatnonzero(free)
    place = place[np.argsort(stratum[place], kind="stable")]
    bounds = np.cumsum([0, *np.bincount(stratum[place], minlength=strata)])
    for number in range(strata):
        mine = place[bounds[number] : bounds[number + 1]]
        test, valid = _shares_of(int(pairs_of[number]), len(mine), settings)
        if test + valid:
            ranks = np.sort(rank[mine])
            split[mine[rank[mine] <= ranks[test + valid - 1]]] = VALID
            split[mine[rank[mine] < (ranks[test] if test < len(mine) else _EVERY)]] = TEST
    return split


def _at_least_one(
    split: npt.NDArray[np.uint8],
    members: npt.NDArray[np.int32],
    free: npt.NDArray[np.bool_],
    rank: npt.NDArray[np.uint64],
    settings: SplitSettings,
) -> None:
    """Give each requested split the free pair with the lowest rank among ``members``, if it has none."""
    for part, wanted in ((TEST, settings.test), (VALID, settings.valid)):
        if wanted and not (split[members] == part).any():
            candidates = members[free[members] & (split[members] == TRAIN)]
            if len(candidates):
                split[candidates[np.argmin(rank[candidates])]] = part


def _shares_of(pairs: int, candidates: int, settings: SplitSettings) -> tuple[int, int]:
    """Number of ``pairs`` for test and valid. With too few candidates, the two are reduced in proportion."""
    test, valid = round(pairs * settings.test), round(pairs * settings.valid)
    if test + valid > candidates:
        test = round(candidates * test / (test + valid))
        valid = candidates - test
    return test, valid
