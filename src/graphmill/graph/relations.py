"""The edges of a graph by relation: sorted by (destination, source), without duplicates, and with their reverses.

Edges are sorted into buckets, one for each relation and range of destinations (:mod:`graphmill.graph.buckets`). Memory
holds one bucket at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from graphmill.errors import InputError
from graphmill.graph.buckets import Buckets, Ranges
from graphmill.graph.numbering import ATTRIBUTES, EdgeColumns, Numbering
from graphmill.graph.settings import GraphSettings
from graphmill.graph.sorted_unique import in_sorted
from graphmill.ingest import disk
from graphmill.ingest.disk import ColumnWriter

Key = tuple[str, str, str]
"""(source type, relation name, target type)."""

Arrays = dict[str, npt.NDArray[Any]]

_LARGEST_KEY = 2**63 - 1


def unit_of(key: Key) -> tuple[str, ...]:
    """The relation without its direction: its name and its two node types in alphabetical order."""
    return key[1], *sorted((key[0], key[2]))


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


def facts_of(key: Key, drafts: Iterable[RelationDraft]) -> RelationFacts:
    """The facts of a relation with the edges of ``drafts``, which share no destination."""
    figures = [(len(each), each.added, each.duplicates, each.parallel(), each.self_loops()) for each in drafts]
    return RelationFacts(key, *map(sum, zip(*figures, strict=True)))


def by_relation(edges: EdgeColumns, numbering: Numbering) -> Iterator[tuple[Key, Arrays]]:
    """The arrays of each relation, with local numbers, in order of first appearance. Both ends are in the graph."""
    edges = edges.take((numbering.of_row[edges.head] >= 0) & (numbering.of_row[edges.tail] >= 0))
    node_type, num_types = numbering.type_of_node(), len(numbering.types)
    head, tail = numbering.of_row[edges.head], numbering.of_row[edges.tail]
    code = (edges.relation.astype(np.int64) * num_types + node_type[head]) * num_types + node_type[tail]
    encoded = pa.array(code).dictionary_encode()
    which = encoded.indices.to_numpy()
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
        yield (numbering.types[source], edges.relation_names[relation], numbering.types[target]), arrays


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


_STORED: Mapping[str, npt.DTypeLike] = {"src": np.int32, "dst": np.int32, "display": np.int32}


def grouped_edges(
    parts: Iterable[EdgeColumns], numbering: Numbering, settings: GraphSettings
) -> tuple[list[RelationFacts], Arrays]:
    """The graph's edges as arrays (E,) by name, relation after relation, and the facts for the manifest of each relation.

    ``parts``: the edges in parts, which are read several times; codes of relations and display relations are the same in
    all. Rows that agree in relation, display_relation, head and tail (and split, if one is given) become one, as ``merge``
    says.

    ``add_reverse: missing`` adds (v, name, u) for each edge (u, name, v), if the mirror relation has no edge from v to u,
    whatever its display_relation, split or attributes. An added reverse has its edge's split and attributes. Edges from a
    node to itself are their own reverses.
    """
    part = next(iter(parts))
    stored = dict(_STORED) | ({} if part.split is None else {"split": np.uint8})
    stored |= {name: ATTRIBUTES[name].to_pandas_dtype() for name in part.attributes}
    grouped = _Grouped(parts, numbering, settings, stored)
    mirrors = [mirror_of(key) for key in grouped.given] if settings.add_reverse == "missing" else []
    out = {name: ColumnWriter(dtype) for name, dtype in stored.items() if name != "display"}

    def drafts(key: Key) -> Iterator[RelationDraft]:
        """The edges of a relation, which are written on the way."""
        for draft in grouped.drafts(key):
            for name, column in out.items():
                column.append(draft.arrays[name])
            yield draft

    facts = [facts_of(key, drafts(key)) for key in dict.fromkeys((*grouped.given, *mirrors))]
    return facts, {name: column.finish() for name, column in out.items()}


class _Grouped:
    """The given edges in the buckets of their relations, sorted and without duplicates; and the reverse of each.

    ``given``: the relations, in the order of their first edges; ``stored``: the columns of a bucket.
    """

    def __init__(
        self,
        parts: Iterable[EdgeColumns],
        numbering: Numbering,
        settings: GraphSettings,
        stored: Mapping[str, npt.DTypeLike],
    ) -> None:
        self.given: dict[Key, None] = {}
        self._counts, reverse = numbering.counts, settings.add_reverse != "never"
        self._ranges: dict[Key, Ranges] = {}
        for key, local in (each for part in parts for each in by_relation(part, numbering)):
            self.given[key] = None
            for end, of in (("dst", key), *([("src", mirror_of(key))] if reverse else [])):
                self._ranges.setdefault(of, Ranges(self._counts[of[2]])).count(local[end])
        sizes = [ranges.cut(disk.BUCKET) for ranges in self._ranges.values()]
        self._first = dict(zip(self._ranges, accumulate(map(len, sizes), initial=0), strict=False))
        self._edges = Buckets(np.concatenate(sizes), stored)
        self._reverses = Buckets(np.concatenate(sizes), stored) if reverse else None
        self._duplicates: dict[int, int] = {}
        for key, local in (each for part in parts for each in by_relation(part, numbering)):
            self._edges.put(self._bucket(key, local["dst"]), local)
        for key in self.given:
            for number in self._places(key):
                draft = sort_unique(self._draft(key, self._edges.get(number)), settings.merge)
                self._duplicates[number] = draft.duplicates
                self._edges.replace(number, draft.arrays)
                if self._reverses is not None:
                    dst, src = draft.arrays["dst"], draft.arrays["src"]
                    self._reverses.put(self._bucket(mirror_of(key), src), draft.arrays | {"src": dst, "dst": src})

    def _bucket(self, key: Key, dst: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
        return self._first[key] + self._ranges[key].of(dst)

    def _places(self, key: Key) -> Iterator[int]:
        """The buckets of a relation, in ascending order of destinations."""
        yield from range(self._first[key], self._first[key] + len(self._ranges[key].sizes))

    def _draft(self, key: Key, rows: Arrays, duplicates: int = 0) -> RelationDraft:
        return RelationDraft(key, self._counts[key[0]], self._counts[key[2]], rows, duplicates=duplicates)

    def drafts(self, key: Key) -> Iterator[RelationDraft]:
        """The edges of the relation ``key`` with the missing reverses, bucket by bucket."""
        for number in self._places(key):
            held = self._draft(key, self._edges.get(number), self._duplicates.get(number, 0))
            if self._reverses is None or mirror_of(key) not in self.given:
                yield held
                continue
            extra, known = self._draft(key, self._reverses.get(number)), held.sort_key()
            wanted = extra.sort_key()
            if len(wanted) == len(known) and np.array_equal(np.sort(wanted), known):
                yield held  # the usual case: every edge written in both directions
                continue
            extra = extra.take(np.flatnonzero(~in_sorted(wanted, known)))
            both = {name: np.concatenate((values, extra.arrays[name])) for name, values in held.arrays.items()}
            yield sort_unique(replace(held, arrays=both, added=len(extra))) if len(extra) else held
