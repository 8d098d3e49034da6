"""Groups the edges of a graph by relation, with their reverses, in bounded memory.

Edges are sorted into buckets, one for each relation and range of destinations (:mod:`graphmill.graph.buckets`). The
functions of :mod:`graphmill.graph.relations` process each bucket. Memory holds one bucket at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from graphmill.graph.buckets import Buckets, Ranges
from graphmill.graph.numbering import ATTRIBUTES, EdgeColumns, Numbering, categories, read_edges
from graphmill.graph.relations import (
    Key,
    RelationDraft,
    RelationFacts,
    by_relation,
    concatenate,
    facts_of,
    held_in,
    mirror_of,
    sort_unique,
)
from graphmill.graph.settings import GraphSettings
from graphmill.ingest import disk
from graphmill.ingest.disk import ColumnWriter, pieces

_STORED = {"src": np.int32, "dst": np.int32, "display": np.int32}


class EdgePieces:
    """The edges table in pieces, each read by :func:`graphmill.graph.numbering.read_edges`."""

    def __init__(self, edges: pa.Table, num_rows: int, *, redraw: bool) -> None:
        self._edges, self._rows, self._redraw = edges, num_rows, redraw
        self._rank: dict[str, dict[str, int]] = {"relation": {}}
        if "display_relation" in edges.column_names:
            self._rank["display_relation"] = {}
        self._arrays = [
            (column.indices if pa.types.is_dictionary(column.type) else column).to_numpy()
            for name in edges.column_names
            for column in edges[name].chunks
            if (pa.types.is_primitive(column.type) or pa.types.is_dictionary(column.type)) and not column.null_count
        ]
        for _, part in self._parts():
            for name, known in self._rank.items():
                for text in categories(part, name, "edges")[1]:
                    known.setdefault(text, len(known))
        self.names = list(self._rank["relation"])

    def _parts(self) -> Iterator[tuple[int, pa.Table]]:
        for part in pieces(self._edges.num_rows, *self._arrays):
            yield part.start, self._edges.slice(part.start, part.stop - part.start)

    def __iter__(self) -> Iterator[EdgeColumns]:
        """Codes of relations and display relations are in the order of first appearance in the whole table."""
        for first, part in self._parts():
            columns = read_edges(part, self._rows, first)
            codes = {}
            for name, known in self._rank.items():
                codes_of_part, texts = categories(part, name, "edges")
                codes[name] = np.array([known[text] for text in texts], np.int32)[codes_of_part]
            split, display = None if self._redraw else columns.split, codes.get("display_relation")
            yield replace(columns, relation=codes["relation"], relation_names=self.names, display=display, split=split)


@dataclass
class Grouped:
    """Edges by relation and range of destinations, before and after reverses are added."""

    numbering: Numbering
    given: list[Key]
    ranges: dict[Key, Ranges]
    first: dict[Key, int]
    edges: Buckets
    reverses: Buckets | None
    duplicates: dict[int, int]
    stored: Mapping[str, npt.DTypeLike]

    def draft(self, key: Key, number: int, rows: dict[str, npt.NDArray[Any]], added: int = 0) -> RelationDraft:
        """The rows of a bucket as a :class:`RelationDraft`."""
        counts, duplicates = self.numbering.counts, 0 if added else self.duplicates.get(number, 0)
        return RelationDraft(key, counts[key[0]], counts[key[2]], rows, added, duplicates)

    def places(self, key: Key) -> Iterator[int]:
        """The buckets of a relation, in ascending order of destinations."""
        yield from range(self.first[key], self.first[key] + len(self.ranges[key]))

    def drafts(self, key: Key) -> Iterator[RelationDraft]:
        """The edges of the relation ``key`` with the missing reverses, bucket by bucket."""
        for number in self.places(key):
            held_draft = self.draft(key, number, self.edges.get(number)) if key in self.given else None
            if self.reverses is None or mirror_of(key) not in self.given:
                assert held_draft is not None
                yield held_draft
                continue
            rows = self.reverses.get(number)
            extra = self.draft(key, number, rows, len(rows["src"]))
            if held_draft is not None:
                kept = np.flatnonzero(~held_in(extra.sort_key(), held_draft.sort_key()))
                extra = replace(extra.take(kept), added=len(kept))
            if held_draft is None or len(extra):
                yield sort_unique(
                    extra if held_draft is None or not len(held_draft) else concatenate(held_draft, extra)
                )
            else:
                yield held_draft


def group_edges(parts: Iterable[EdgeColumns], numbering: Numbering, settings: GraphSettings) -> Grouped:
    """The given edges in the buckets of their relations, sorted and without duplicates; and the reverse of each.

    ``parts``: the edges in parts, which are read several times; codes of relations and display relations are the same in
    all.

    Rows that agree in relation, display_relation, head and tail (and split, if one is given) become one, as ``merge`` says.
    """
    reverse = settings.add_reverse != "never"
    counts = numbering.counts
    given: list[Key] = []
    ranges: dict[Key, Ranges] = {}
    for key, local in _by_relation(parts, numbering):
        if key not in given:
            given.append(key)
        for end, of in (("dst", key), *([("src", mirror_of(key))] if reverse else [])):
            ranges.setdefault(of, Ranges(counts[of[2]])).count(local[end])
    first: dict[Key, int] = {}
    sizes: list[npt.NDArray[np.int64]] = []
    for key, of_key in ranges.items():
        of_key.cut(disk.BUCKET)
        first[key] = sum(len(each) for each in sizes)
        sizes.append(of_key.sizes)
    part = next(iter(parts))
    stored = _STORED | ({} if part.split is None else {"split": np.uint8})
    stored |= {name: ATTRIBUTES[name].to_pandas_dtype() for name in part.attributes}
    all_sizes = np.concatenate(sizes)
    grouped = Grouped(
        numbering, given, ranges, first, Buckets(all_sizes, stored), Buckets(all_sizes, stored) if reverse else None, {},
        stored,
    )  # fmt: skip
    for key, local in _by_relation(parts, numbering):
        grouped.edges.put(first[key] + ranges[key].of(local["dst"]), local)
    for key in given:
        for number in grouped.places(key):
            draft = sort_unique(grouped.draft(key, number, grouped.edges.get(number)), settings.merge)
            grouped.duplicates[number] = draft.duplicates
            grouped.edges.replace(number, draft.arrays)
            if grouped.reverses is not None:
                mirror = mirror_of(key)
                dst, src = draft.arrays["dst"], draft.arrays["src"]
                grouped.reverses.put(first[mirror] + ranges[mirror].of(src), draft.arrays | {"src": dst, "dst": src})
    return grouped


def _by_relation(
    parts: Iterable[EdgeColumns], numbering: Numbering
) -> Iterator[tuple[Key, dict[str, npt.NDArray[Any]]]]:
    """The edges of each piece that are in the graph, by relation."""
    for part in parts:
        inside = (numbering.of_row[part.head] >= 0) & (numbering.of_row[part.tail] >= 0)
        yield from by_relation(part.take(inside), numbering)


def written(grouped: Grouped, settings: GraphSettings) -> tuple[list[RelationFacts], dict[str, npt.NDArray[Any]]]:
    """The graph's edges as arrays (E,) by name, relation after relation, and the facts for the manifest of each relation.

    ``add_reverse: missing`` adds (v, name, u) for each edge (u, name, v), if the mirror relation has no edge from v to u,
    whatever its display_relation, split or attributes. An added reverse has its edge's split and attributes. Edges from a
    node to itself are their own reverses.
    """
    mirrors = [mirror_of(key) for key in grouped.given] if settings.add_reverse == "missing" else []
    out = {name: ColumnWriter(dtype) for name, dtype in grouped.stored.items() if name != "display"}

    def drafts(key: Key) -> Iterator[RelationDraft]:
        """The edges of a relation, which are written on the way."""
        for draft in grouped.drafts(key):
            for name, column in out.items():
                column.append(draft.arrays[name])
            yield draft

    facts = [facts_of(key, drafts(key)) for key in dict.fromkeys((*grouped.given, *mirrors))]
    return facts, {name: column.finish() for name, column in out.items()}
