"""Groups the edges of a graph by relation, with their reverses, in bounded memory.

Edges are sorted into buckets, one for each relation and range of destinations (:mod:`graphmill.graph.buckets`). The
functions of :mod:`graphmill.graph.relations` process each bucket. Memory holds one bucket at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import accumulate
from typing import Any

import numpy as np
import numpy.typing as npt

from graphmill.graph.buckets import Buckets, Ranges
from graphmill.graph.numbering import ATTRIBUTES, EdgeColumns, Numbering
from graphmill.graph.relations import (
    Arrays,
    Key,
    RelationDraft,
    RelationFacts,
    by_relation,
    facts_of,
    mirror_of,
    sort_unique,
)
from graphmill.graph.settings import GraphSettings
from graphmill.graph.sorted_unique import in_sorted
from graphmill.ingest import disk
from graphmill.ingest.disk import ColumnWriter

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
