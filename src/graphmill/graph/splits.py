"""Draws the node pairs to hold out. The unit is the undirected pair: training keeps no edge of a held-out pair.

An edge, its reverse, its duplicates and every other relation between the same two nodes are one pair, and have the same
split. This module numbers pairs and draws splits. ``leakage`` audits the result independently.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from graphmill.graph.settings import SplitSettings
from graphmill.graph.sorted_unique import sorted_unique

TRAIN, VALID, TEST = 0, 1, 2
SPLIT_NAMES = ("train", "valid", "test")

SMALL_RELATION = 10
"""A relation with at least this many pairs has a pair in each held-out split, if each node keeps a training pair."""


@dataclass(frozen=True)
class Pairs:
    """The undirected node pairs of a graph, numbered in ascending order of (low, high).

    ``of_edge`` (E,) int32 is each edge's pair; ``low``, ``high`` (num_pairs,) int32 are the pair's global node
    numbers, low ≤ high.
    """

    of_edge: npt.NDArray[np.int32]
    low: npt.NDArray[np.int32]
    high: npt.NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.low)


def number_pairs(src: npt.NDArray[np.int32], dst: npt.NDArray[np.int32], num_nodes: int) -> Pairs:
    """Pairs of the edges ``src`` → ``dst`` (E,), given as global node numbers below ``num_nodes``."""
    key = np.minimum(src, dst) * np.int64(num_nodes) + np.maximum(src, dst)
    unique, of_edge = np.unique(key, return_inverse=True)
    return Pairs(
        of_edge.astype(np.int32), (unique // num_nodes).astype(np.int32), (unique % num_nodes).astype(np.int32)
    )


def node_keys(types: Iterable[str], ids: Iterable[str], seed: int) -> npt.NDArray[np.uint64]:
    """(num_nodes,) uint64: a hash of each node's type and id, keyed by the seed; it depends on nothing else."""
    key = seed.to_bytes(16, "little")
    digests = b"".join(
        hashlib.blake2b(f"{kind}\0{name}".encode(), digest_size=8, key=key).digest()
        for kind, name in zip(types, ids, strict=True)
    )
    return np.frombuffer(digests, dtype="<u8").astype(np.uint64)


def draw_splits(
    pairs: Pairs,
    relation_edges: Sequence[slice],
    units: Sequence[tuple[str, ...]],
    keys: npt.NDArray[np.uint64],
    settings: SplitSettings,
) -> npt.NDArray[np.uint8]:
    """(num_pairs,) uint8: 0 train, 1 valid, 2 test, drawn pair by pair, in proportion in every relation.

    ``relation_edges[r]`` are the edges of relation r in ``pairs.of_edge``; ``units[r]`` names relation r without its
    direction, so that a relation and its mirror count as one. ``keys`` (num_nodes,) uint64 come from
    :func:`node_keys`.

    Each pair belongs to the rarest of its relations. There its pairs are ranked by a hash of the two nodes: the lowest
    ``test`` part is the test set, the next ``valid`` part the validation set. The hash does not depend on row order or
    on other pairs. When data is added, the held-out pairs stay the same, except for a few at the borders.

    - A relation with at least :data:`SMALL_RELATION` pairs has at least one pair in each requested split.
    - A pair of a node with itself stays in train.
    - Each node keeps one training pair: its highest-ranked one is never held out. So a relation gets less than its
      share if most of its pairs are the only pair of some node.
    """
    split = np.zeros(len(pairs), np.uint8)
    loops = pairs.low == pairs.high
    rank = np.empty(len(pairs), np.int64)
    rank[np.argsort(pair_hashes(keys[pairs.low], keys[pairs.high]), kind="stable")] = np.arange(len(pairs))
    highest = np.full(len(keys), -1, np.int64)
    for ends in (pairs.low, pairs.high):
        np.maximum.at(highest, ends[~loops], rank[~loops])
    free = ~loops & (rank != highest[pairs.low]) & (rank != highest[pairs.high])

    members = _pairs_by_unit(pairs, relation_edges, units, ~loops)
    stratum = np.full(len(pairs), -1, np.int32)
    for number, pair_numbers in enumerate(members):  # most frequent first, so that a pair ends up with its rarest unit
        stratum[pair_numbers] = number
    order = np.lexsort((rank, stratum))
    bounds = np.searchsorted(stratum[order], np.arange(len(members) + 1))
    for number in range(len(members)):
        in_rank_order = order[bounds[number] : bounds[number + 1]]
        candidates = in_rank_order[free[in_rank_order]]
        test, valid = shares_of(len(in_rank_order), len(candidates), settings)
        split[candidates[:test]] = TEST
        split[candidates[test : test + valid]] = VALID

    for pair_numbers in reversed(members):
        if len(pair_numbers) >= SMALL_RELATION:
            at_least_one(split, pair_numbers, free, rank, settings)
    return split


def at_least_one(
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


def pair_hashes(a: npt.NDArray[np.uint64], b: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Hashes of pairs of nodes from the nodes' keys; the same for (a, b) and (b, a)."""
    return mix_bits(np.minimum(a, b) + mix_bits(np.maximum(a, b)))


GOLDEN = np.uint64(0x9E3779B97F4A7C15)
"""splitmix64's increment: 2⁶⁴ divided by the golden ratio."""


def mix_bits(x: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """The finaliser of splitmix64 (Steele, Lea, Flood 2014): every input bit changes about half of the output bits."""
    x = x + GOLDEN
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def _pairs_by_unit(
    pairs: Pairs, relation_edges: Sequence[slice], units: Sequence[tuple[str, ...]], eligible: npt.NDArray[np.bool_]
) -> list[npt.NDArray[np.int32]]:
    """The distinct eligible pairs of each unit, ascending. Units are sorted by number of pairs, largest first, then by
    name."""
    edges_of: dict[tuple[str, ...], list[npt.NDArray[np.int32]]] = {}
    for edges, unit in zip(relation_edges, units, strict=True):
        edges_of.setdefault(unit, []).append(pairs.of_edge[edges])
    distinct = [(sorted_unique(np.concatenate(parts)), unit) for unit, parts in edges_of.items()]
    members = [(numbers[eligible[numbers]], name) for numbers, name in distinct]
    members.sort(key=lambda item: (-len(item[0]), item[1]))
    return [numbers for numbers, _ in members if len(numbers)]


def shares_of(pairs: int, candidates: int, settings: SplitSettings) -> tuple[int, int]:
    """Number of ``pairs`` for test and valid. With too few candidates, the two are reduced in proportion."""
    test, valid = round(pairs * settings.test), round(pairs * settings.valid)
    if test + valid > candidates:
        test = round(candidates * test / (test + valid))
        valid = candidates - test
    return test, valid
