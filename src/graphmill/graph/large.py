"""Builds a typed graph with more edges than fit in memory: the steps of :mod:`graphmill.graph.build`, with the edges in
files.

Edges are sorted into buckets on disk, one for each relation and range of destinations. The functions for small graphs
process each bucket. Memory holds one bucket at a time, a few values for each node, and a byte or two for each pair. The
files are byte for byte those of the build in memory.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from graphmill.errors import ResourceError
from graphmill.graph.buckets import Buckets, Ranges
from graphmill.graph.features import align_features
from graphmill.graph.graph_directory import Made, node_table, publish
from graphmill.graph.large_splits import EndsOfEdges, LargePairs, draw_large_splits
from graphmill.graph.numbering import (
    ATTRIBUTES,
    EdgeColumns,
    Numbering,
    categories,
    included_types,
    numbering_of,
    read_edges,
)
from graphmill.graph.relations import (
    Key,
    RelationDraft,
    RelationFacts,
    by_relation,
    concatenate,
    draft_of,
    facts_of,
    held_in,
    inverse_key,
    mirror_of,
    sort_unique,
    unit_of,
)
from graphmill.graph.settings import GraphSettings
from graphmill.graph.splits import node_keys
from graphmill.graph.typed_graph import TypedGraph
from graphmill.ingest import disk
from graphmill.ingest.disk import DiskArray, pieces
from graphmill.ingest.engine import fits_in_memory
from graphmill.ingest.interactions import RELATION
from graphmill.memory import available_memory, format_size

_STORED = {"src": np.int32, "dst": np.int32, "display": np.int32}


_AN_EDGE = 120
"""Peak bytes of memory per edge of the graph, in the build in memory."""
_ON_DISK = 75
"""Bytes of files per edge of the graph."""


def memory_of_build(rows: int, settings: GraphSettings) -> int:
    """Peak bytes of memory of the build in memory, for a table of edges and their reverses."""
    return rows * _AN_EDGE * (1 if settings.add_reverse == "never" else 2)


def disk_of_build(rows: int, settings: GraphSettings) -> int:
    """Bytes of temporary files, and of the graph, that :func:`build_large` writes."""
    return rows * _ON_DISK * (1 if settings.add_reverse == "never" else 2)


def would_not_fit(edges: pa.Table, settings: GraphSettings) -> bool:
    """Whether the build in memory would need more memory than is available."""
    return not fits_in_memory(memory_of_build(edges.num_rows, settings), available_memory())


def can_be_large(edges: pa.Table, settings: GraphSettings) -> bool:
    """Whether :func:`build_large` supports the split in the settings: pairs, or the split of the table."""
    asked = settings.split
    if "split" in edges.column_names and asked.given != "redraw":
        return asked.given == "keep"
    if asked.method != "auto":
        return asked.method == "pairs"
    relation = edges["relation"]
    names = (chunk.dictionary if pa.types.is_dictionary(relation.type) else chunk for chunk in relation.chunks)
    return "position" not in edges.column_names and not any(RELATION in name.to_pylist() for name in names)


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
            if pa.types.is_primitive(column.type) or pa.types.is_dictionary(column.type)
        ]
        for _, part in self._parts():
            for name, known in self._rank.items():
                for text in categories(part, name, "edges")[1]:
                    known.setdefault(text, len(known))
        self.names = list(self._rank["relation"])
        self.attributes = [name for name in ATTRIBUTES if name in edges.column_names]
        self.has_split = "split" in edges.column_names and not redraw

    def _parts(self) -> Iterator[tuple[int, pa.Table]]:
        for part in pieces(self._edges.num_rows, *self._arrays):
            yield part.start, self._edges.slice(part.start, part.stop - part.start)

    def __iter__(self) -> Iterator[EdgeColumns]:
        """Codes of relations and display relations are in the order of first appearance in the whole table."""
        for first, part in self._parts():
            found = read_edges(part, self._rows, first)
            codes = {}
            for name, known in self._rank.items():
                own, texts = categories(part, name, "edges")
                codes[name] = np.array([known[text] for text in texts], np.int32)[own]
            split, display = None if self._redraw else found.split, codes.get("display_relation")
            yield replace(found, relation=codes["relation"], relation_names=self.names, display=display, split=split)


@dataclass
class _Grouped:
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
        return draft_of(key, counts[key[0]], counts[key[2]], rows, added, duplicates)

    def places(self, key: Key) -> Iterator[int]:
        """The buckets of a relation, in ascending order of destinations."""
        yield from range(self.first[key], self.first[key] + len(self.ranges[key]))

    def drafts(self, key: Key, *, inverse: bool) -> Iterator[RelationDraft]:
        """The edges of the relation ``key``, bucket by bucket. ``inverse``: only the reverses, as a relation of their
        own."""
        for number in self.places(key):
            own = self.draft(key, number, self.edges.get(number)) if key in self.given and not inverse else None
            if self.reverses is None or mirror_of(key) not in self.given:
                assert own is not None
                yield own
                continue
            rows = self.reverses.get(number)
            extra = self.draft(key, number, rows, len(rows["src"]))
            if own is not None:
                extra = _picked(extra, ~held_in(extra.sort_key(), own.sort_key()))
            if own is None or len(extra):
                yield sort_unique(extra if own is None or not len(own) else concatenate(own, extra))
            else:
                yield own

    def directed(self, key: Key) -> bool:
        """Whether some edge in the mirror relation of ``key`` has no reverse in the table."""
        assert self.reverses is not None
        for number in self.places(key):
            held = self.draft(key, number, self.edges.get(number)).sort_key() if key in self.given else None
            if not held_in(self.draft(key, number, self.reverses.get(number)).sort_key(), held).all():
                return True
        return False


def _picked(draft: RelationDraft, keep: npt.NDArray[np.bool_]) -> RelationDraft:
    return replace(draft.take(np.flatnonzero(keep)), added=int(keep.sum()))


def build_large(
    nodes: pa.Table, edges: pa.Table, settings: GraphSettings, out: Path, features: Mapping[str, pa.Table]
) -> TypedGraph:
    """:func:`graphmill.graph.build.build_graph` out of core, for pairs that are drawn, or for the table's own split.

    Raises :class:`ResourceError` if there is no room for the temporary files.
    """
    if (wanted_room := disk_of_build(edges.num_rows, settings)) > (room := disk.free_disk()):
        raise ResourceError(
            f"building out of core takes about {format_size(wanted_room)} of temporary files, and {tempfile.gettempdir()} "
            f"has {format_size(room)} free; set TMPDIR to a folder with more room"
        )
    type_of_row, known_types = categories(nodes, "type", "nodes")
    columns = EdgePieces(edges, len(nodes), redraw=settings.split.given == "redraw")
    wanted, node_rank = included_types(type_of_row, known_types, settings)
    touched, excluded = np.zeros(len(nodes), bool), 0
    for part in columns:
        inside = (node_rank[part.head] >= 0) & (node_rank[part.tail] >= 0)
        excluded += int((~inside).sum())
        touched[part.head[inside]] = touched[part.tail[inside]] = True
    numbering = numbering_of(wanted, node_rank, touched, settings)
    grouped = _grouped(columns, numbering, settings)
    facts, arrays = _written(grouped, settings)
    pairs = LargePairs(EndsOfEdges(facts, arrays["src"], arrays["dst"], numbering.first), numbering.num_nodes)
    table = node_table(nodes, numbering)
    if not columns.has_split:
        keys = node_keys(_texts(table, "type"), _texts(table, "id"), settings.split.seed)
        of_pair, split = draw_large_splits(pairs, keys, settings.split), DiskArray(np.uint8)
        for place in pieces(len(pairs.of_edge), pairs.of_edge):
            split.append(of_pair[pairs.of_edge[place]])
        arrays["split"] = split.finish()
    made = Made(
        numbering,
        table,
        align_features(features, numbering, type_of_row, known_types),
        facts,
        arrays | {"pair": pairs.of_edge},
        len(pairs),
        pairs.audit(arrays["split"]),
        {"excluded_edges": excluded, "split_source": "given" if columns.has_split else "drawn"},
    )
    return publish(made, settings, out)


def _texts(table: pa.Table, name: str) -> Iterator[str]:
    for batch in table.select([name]).to_batches(max_chunksize=1 << 16):
        yield from batch.column(0).to_pylist()


def _grouped(columns: EdgePieces, numbering: Numbering, settings: GraphSettings) -> _Grouped:
    """The given edges in the buckets of their relations, sorted and without duplicates; and the reverse of each."""
    merged, reverse = settings.parallel_edges == "merge", settings.add_reverse != "never"
    counts = numbering.counts
    given: list[Key] = []
    ranges: dict[Key, Ranges] = {}
    for key, local in _by_relation(columns, numbering):
        if key not in given:
            given.append(key)
        for end, of in (("dst", key), *([("src", mirror_of(key))] if reverse else [])):
            ranges.setdefault(of, Ranges(counts[of[2]])).count(local[end])
    first: dict[Key, int] = {}
    sizes: list[npt.NDArray[np.int64]] = []
    for key, found in ranges.items():
        found.cut(disk.BUCKET)
        first[key] = sum(len(each) for each in sizes)
        sizes.append(found.sizes)
    stored = _STORED | ({"split": np.uint8} if columns.has_split else {})
    stored |= {name: ATTRIBUTES[name].to_pandas_dtype() for name in columns.attributes}
    all_sizes = np.concatenate(sizes)
    grouped = _Grouped(
        numbering, given, ranges, first, Buckets(all_sizes, stored), Buckets(all_sizes, stored) if reverse else None, {},
        stored,
    )  # fmt: skip
    for key, local in _by_relation(columns, numbering):
        local["display"] = local["display"] * (not merged)
        grouped.edges.put(first[key] + ranges[key].of(local["dst"]), local)
    for key in given:
        for number in grouped.places(key):
            draft = sort_unique(grouped.draft(key, number, grouped.edges.get(number)))
            grouped.duplicates[number] = draft.duplicates
            grouped.edges.replace(number, draft.arrays)
            if grouped.reverses is not None:
                mirror = mirror_of(key)
                rows = draft.arrays | {"src": draft.dst, "dst": draft.src}
                grouped.reverses.put(first[mirror] + ranges[mirror].of(draft.src), rows)
    return grouped


def _by_relation(columns: EdgePieces, numbering: Numbering) -> Iterator[tuple[Key, dict[str, npt.NDArray[Any]]]]:
    """The edges of each piece that are in the graph, by relation."""
    for part in columns:
        inside = (numbering.of_row[part.head] >= 0) & (numbering.of_row[part.tail] >= 0)
        yield from by_relation(part.take(inside), numbering)


def _written(grouped: _Grouped, settings: GraphSettings) -> tuple[list[RelationFacts], dict[str, npt.NDArray[Any]]]:
    """The graph's edges as arrays (E,) in files, relation after relation, and the facts for the manifest of each
    relation."""
    given = grouped.given
    mirrors = [mirror_of(key) for key in given]
    relations: dict[Key, tuple[Key, bool]] = {key: (key, False) for key in given}
    plain = grouped if settings.add_reverse == "missing" else replace(grouped, reverses=None)
    if settings.add_reverse == "missing":
        relations |= {mirror: (mirror, False) for mirror in mirrors if mirror not in relations}
    elif settings.add_reverse == "inverse":
        directed = {unit_of(mirror) for mirror in mirrors if grouped.directed(mirror)}
        for key, mirror in zip(given, mirrors, strict=True):
            if unit_of(key) in directed:
                relations[inverse_key(key, relations)] = (mirror, True)
    out = {name: DiskArray(dtype) for name, dtype in grouped.stored.items() if name != "display"}

    def drafts(key: Key, *, inverse: bool) -> Iterator[RelationDraft]:
        """The edges of a relation, which are written on the way."""
        for draft in (grouped if inverse else plain).drafts(key, inverse=inverse):
            for name, column in out.items():
                column.append(draft.arrays[name])
            yield draft

    facts = [facts_of(key, drafts(stored, inverse=inverse)) for key, (stored, inverse) in relations.items()]
    return facts, {name: column.finish() for name, column in out.items()}
