"""The edges of a graph by relation: sorted by (destination, source), without duplicates, and with their reverses; and the
undirected node pairs of them all, of which those to hold out are drawn, in proportion in every relation.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from graphmill.errors import InputError
from graphmill.graph.numbering import EdgeColumns, Numbering
from graphmill.graph.settings import GraphSettings, SplitSettings
from graphmill.graph.sorted_unique import in_sorted, sorted_unique
from graphmill.graph.splits import TEST, TRAIN, VALID, pair_hashes

Key = tuple[str, str, str]
"""(source type, relation name, target type)."""

Arrays = dict[str, npt.NDArray[Any]]

_LARGEST_KEY = 2**63 - 1


def mirror_of(key: Key) -> Key:
    """The key of the relation that holds the reverses."""
    return key[2], key[1], key[0]


@dataclass(frozen=True)
class RelationDraft:
    """The edges of one relation while the graph is being built.

    ``arrays`` (E,) by name, sorted by (dst, src): ``src`` and ``dst`` int32, node numbers that are local to their type;
    ``display`` int32, which distinguishes parallel edges and is not stored; ``split`` uint8, once it is drawn; and the
    attributes. ``added``: number of edges that are reverses not in the table. ``duplicates``: number of rows of the table
    that were left out because they repeat another.
    """

    key: Key
    num_source: int
    num_target: int
    arrays: Arrays
    added: int = 0
    duplicates: int = 0

    def __len__(self) -> int:
        return len(self.arrays["src"])

    def self_loops(self) -> int:
        """Number of edges from a node to itself."""
        return int((self.arrays["src"] == self.arrays["dst"]).sum()) if self.key[0] == self.key[2] else 0

    def parallel(self) -> int:
        """Number of edges beyond the first from one node to another (within a split, if one is given)."""
        key = self.sort_key()
        same = key[1:] == key[:-1]
        if "split" in self.arrays:
            same &= self.arrays["split"][1:] == self.arrays["split"][:-1]
        return int(same.sum())

    def sort_key(self) -> npt.NDArray[np.int64]:
        """(E,) int64, ascending: dst · num_source + src."""
        return self.arrays["dst"] * np.int64(self.num_source) + self.arrays["src"]

    def facts(self) -> RelationFacts:
        """What the manifest says of the relation."""
        return RelationFacts(self.key, len(self), self.added, self.duplicates, self.parallel(), self.self_loops())

    def turned(self) -> RelationDraft:
        """The reverses of all edges, in the order of the edges."""
        ends = {"src": self.arrays["dst"], "dst": self.arrays["src"]}
        return RelationDraft(mirror_of(self.key), self.num_target, self.num_source, self.arrays | ends)

    def take(self, order: npt.NDArray[np.int64]) -> RelationDraft:
        """The edges with the numbers ``order``, in that order."""
        return replace(self, arrays={name: values[order] for name, values in self.arrays.items()})


@dataclass(frozen=True)
class RelationFacts:
    """The facts about a relation for the manifest: see :class:`RelationDraft`."""

    key: Key
    edges: int
    added: int
    duplicates: int
    parallel: int
    self_loops: int

    @property
    def name(self) -> str:
        """``source | name | target``."""
        return " | ".join(self.key)


def by_relation(edges: EdgeColumns, numbering: Numbering) -> Iterator[RelationDraft]:
    """The edges of each relation in the order of their rows, relations in order of first appearance. Both ends are in the
    graph."""
    node_type, num_types, counts = numbering.type_of_node(), len(numbering.types), numbering.counts
    head, tail = numbering.of_row[edges.head], numbering.of_row[edges.tail]
    code = (edges.relation.astype(np.int64) * num_types + node_type[head]) * num_types + node_type[tail]
    encoded = pa.array(code).dictionary_encode()
    which = encoded.indices.to_numpy()
    del code
    # With 16-bit keys, numpy uses radix sort.
    order = np.argsort(which.astype(np.int16) if len(encoded.dictionary) < 2**15 else which, kind="stable")
    bounds = pairwise([0, *np.cumsum(np.bincount(which)).tolist()])
    for packed, (first, end) in zip(encoded.dictionary.to_pylist(), bounds, strict=True):
        rest, target = divmod(packed, num_types)
        relation, source = divmod(rest, num_types)
        rows = order[first:end]
        arrays: Arrays = {
            "src": (head[rows] - numbering.offsets[source]).astype(np.int32),
            "dst": (tail[rows] - numbering.offsets[target]).astype(np.int32),
            "display": np.zeros(len(rows), np.int32) if edges.display is None else edges.display[rows],
        }
        arrays |= {} if edges.split is None else {"split": edges.split[rows]}
        arrays |= {name: values[rows] for name, values in edges.attributes.items()}
        key = numbering.types[source], edges.relation_names[relation], numbering.types[target]
        yield RelationDraft(key, counts[key[0]], counts[key[2]], arrays)


def sort_unique(draft: RelationDraft, merge: str = "max") -> RelationDraft:
    """Sort by (dst, src, split, display). Of equal edges one is kept, and the others are counted as duplicates.

    ``merge``: "last" keeps the last; "max" and "sum" keep the first, with that of the weights, the largest confidence and
    the earliest time.

    Raises :class:`InputError` if the two node types are so large that a pair of nodes does not fit a 64-bit number.
    """
    kinds = int(draft.arrays["display"].max(initial=0)) + 1
    if draft.num_source * draft.num_target * 3 * kinds > _LARGEST_KEY:
        raise InputError(
            f"relation {draft.key}: {draft.num_source} × {draft.num_target} nodes are more than the format can "
            "number; split the node type"
        )
    key = draft.sort_key()
    key *= 3
    if "split" in draft.arrays:
        key += draft.arrays["split"]
    key *= kinds
    key += draft.arrays["display"]
    if np.all(key[1:] > key[:-1]):
        return draft
    order = np.argsort(key, kind="stable")
    key = key[order]
    starts = np.flatnonzero(np.concatenate(([True], key[1:] != key[:-1])))
    kept = order[np.append(starts[1:], len(order)) - 1 if merge == "last" else starts]
    distinct = replace(draft.take(kept), duplicates=draft.duplicates + len(order) - len(kept))
    if merge == "last" or len(kept) == len(order):
        return distinct
    rules = {"weight": np.add if merge == "sum" else np.maximum, "confidence": np.fmax}
    merged = {n: rules[n].reduceat(v[order], starts) for n, v in draft.arrays.items() if n in rules}
    if "timestamp" in draft.arrays:  # NO_TIME − 1 wraps to the largest number, so that any time is earlier
        merged["timestamp"] = np.minimum.reduceat(draft.arrays["timestamp"][order] - 1, starts) + 1
    return replace(distinct, arrays=distinct.arrays | merged)


def grouped_edges(
    edges: EdgeColumns, numbering: Numbering, settings: GraphSettings
) -> tuple[list[RelationFacts], Arrays]:
    """The graph's edges as arrays (E,) by name, relation after relation, and the facts for the manifest of each relation.

    Rows that agree in relation, display_relation, head and tail (and split, if one is given) become one, as ``merge``
    says.

    ``add_reverse: missing`` adds (v, name, u) for each edge (u, name, v), if the mirror relation has no edge from v to u,
    whatever its display_relation, split or attributes. An added reverse has its edge's split and attributes. Edges from a
    node to itself are their own reverses.
    """
    drafts = {draft.key: sort_unique(draft, settings.merge) for draft in by_relation(edges, numbering)}
    if settings.add_reverse == "missing":
        keys = dict.fromkeys((*drafts, *map(mirror_of, drafts)))
        drafts = {key: _with_reverses(drafts.get(key), drafts.get(mirror_of(key))) for key in keys}
    facts = [draft.facts() for draft in drafts.values()]
    names = [name for name in next(iter(drafts.values())).arrays if name != "display"]
    return facts, {name: np.concatenate([draft.arrays.pop(name) for draft in drafts.values()]) for name in names}


def _with_reverses(held: RelationDraft | None, mirror: RelationDraft | None) -> RelationDraft:
    """The edges of a relation, if it has any, with the missing reverses of its mirror."""
    if mirror is None:
        assert held is not None
        return held
    reverses = mirror.turned()
    if held is None:
        return sort_unique(replace(reverses, added=len(reverses)))
    known, wanted = held.sort_key(), reverses.sort_key()
    if len(wanted) == len(known) and np.array_equal(np.sort(wanted), known):
        return held  # the usual case: every edge written in both directions
    extra = reverses.take(np.flatnonzero(~in_sorted(wanted, known)))
    both = {name: np.concatenate((values, extra.arrays[name])) for name, values in held.arrays.items()}
    return sort_unique(replace(held, arrays=both, added=len(extra))) if len(extra) else held


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
        source, name, target = facts.key
        units.setdefault((name, *sorted((source, target))), []).append(number)
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
