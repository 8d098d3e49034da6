"""Node files and edge files together as one graph: what the formats kg_files, kgx, neo4j and ntriples have in common.

Each says which columns play which part (:class:`NodeSource`, :class:`EdgeSource`); here they are read. An edge names its
ends by id: their type is the file's, a column's, or that of the listed node with this id.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from graphmill.errors import InputError
from graphmill.ingest.catalogue import Catalogue, Listed, TypeRule, catalogue_of
from graphmill.ingest.csv_blocks import CsvBlock, Lines
from graphmill.ingest.csv_parsers import Column
from graphmill.ingest.feature_files import numbers_of
from graphmill.ingest.files import shown
from graphmill.ingest.kg_assemble import Assembled, Assembly
from graphmill.ingest.kg_columns import KgLayout, Side
from graphmill.ingest.kg_mentions import digest
from graphmill.ingest.kg_notes import described_counts, problems
from graphmill.ingest.oddities import edge_oddities, node_oddities
from graphmill.ingest.rejects import Reject, reject_table
from graphmill.ingest.rows import RowFile
from graphmill.ingest.tables import EDGES, MAX_SHOWN, NODES, REJECTS, IngestResult, check_table
from graphmill.settings import Settings, setting

_HEAD_TYPE, _TAIL_TYPE = "\x00head type", "\x00tail type"


class GraphFilesSettings(Settings):
    """How nodes and edges of several files become one graph."""

    type_rule: TypeRule = setting(
        "rarest",
        "which type a node with several has: rarest: the one of fewest nodes (the most specific); first; last; joined: a "
        "type of its own for each combination",
    )
    missing_type: str = setting("node", "the type of nodes that no file gives one", min_length=1)
    strict: bool = setting(False, "refuse the files where a row is rejected or anything odd is found")
    max_rejects: int = setting(
        100_000, "refuse the files as soon as more rows than this cannot be used; 0: never", ge=0, identity=False
    )


@dataclass(frozen=True)
class NodeSource:
    """One node file: its columns (empty: none), or what all rows have.

    ``space``: the ID space of its ids; empty: their type. ``only_where``: rows in which this column is blank are of another
    kind, and are skipped.
    """

    path: str
    id: str
    type: str = ""
    name: str = ""
    source: str = ""
    constant: str = ""
    space: str = ""
    features: tuple[str, ...] = ()
    feature_set: str = ""
    delimiter: str = "auto"
    header: bool = True
    only_where: str = ""


@dataclass(frozen=True)
class EdgeSource:
    """One edge file; of ``head`` and ``tail``, ``constant`` is the type or ID space of all rows, ``type`` its column.

    ``prefix``: taken off relations. ``only_where``: as for nodes.
    """

    path: str
    head: Side
    tail: Side
    relation: str = ""
    relation_constant: str = ""
    display_relation: str = ""
    delimiter: str = "auto"
    header: bool = True
    prefix: str = ""
    only_where: str = ""

    def layout(self) -> KgLayout:
        """The columns to read; types are looked up afterwards."""
        wanted: dict[str, Column] = {}
        for name, required in (
            (self.relation, True), (self.display_relation, False), (self.head.id, True), (self.tail.id, True),
            (self.head.type, False), (self.tail.type, False), (self.head.name, False), (self.tail.name, False),
            (self.head.source, False), (self.tail.source, False),
        ):  # fmt: skip
            if name:
                known = wanted.get(name)
                wanted[name] = Column(
                    name, "text", (required and not self.only_where) or (known is not None and known.required)
                )
        return KgLayout(
            self.relation,
            self.relation_constant,
            self.display_relation,
            replace(self.head, type=_HEAD_TYPE, constant=""),
            replace(self.tail, type=_TAIL_TYPE, constant=""),
            tuple(wanted.values()),
            (),
        )


@dataclass
class GraphReading:
    """One reading of a graph's files: what was refused so far, by file."""

    name: str
    settings: GraphFilesSettings
    rejects: list[tuple[str, list[Reject]]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def refuse(self, file: str, rejects: Sequence[Reject]) -> None:
        """Keep rejects; raises :class:`InputError` where they are too many."""
        if not rejects:
            return
        self.rejects.append((file, sorted(rejects)))
        count, most = sum(len(found) for _, found in self.rejects), self.settings.max_rejects
        if most and count > most:
            first_file, found = self.rejects[0]
            raise InputError(
                f"{self.name}: more than {most:,} rows cannot be used; the first is in {first_file}, {found[0].place}. "
                "Check the formats and the columns (max_rejects: 0 reads on regardless)"
            )

    def listed(self, source: NodeSource) -> Listed:
        """The rows of a node file."""
        names = [source.id, source.type, source.name, source.source, *source.features]
        parts: list[tuple[pa.Table, np.ndarray, np.ndarray | None]] = []
        with RowFile(source.path, source.delimiter, header_line=source.header, wanted=names) as file:
            missing = [name for name in names if name and name not in file.names]
            if missing:
                raise InputError(
                    f"{file.name}: column {', '.join(missing)} is missing; there are {', '.join(file.names)}"
                )
            columns = {n: Column(n, "text", n == source.id and not source.only_where) for n in names if n}
            for (table, lines, values, wrong), refused in file.blocks(
                tuple(columns.values()),
                lambda block: _node_rows(_of_kind(block, source.only_where), source, file.delimiter),
            ):
                parts.append((table, lines, values))
                self.refuse(file.name, [*refused, *wrong])
        table = pa.concat_tables([part for part, _, _ in parts]) if parts else _NODE_ROWS.empty_table()
        lines = np.concatenate([np.zeros(0, np.int64), *(lines for _, lines, _ in parts)])
        values = np.concatenate([v for _, _, v in parts if v is not None]) if source.features and parts else None
        texts = {name: table[name].combine_chunks() for name in _NODE_ROWS.names}
        texts = {n: c.chunk(0) if isinstance(c, pa.ChunkedArray) else c for n, c in texts.items()}
        return Listed(file.name, source.space or source.constant, **texts, line=lines, values=values,
                      feature_set=source.feature_set)  # fmt: skip

    def edges(self, source: EdgeSource) -> Iterator[CsvBlock]:
        """The blocks of an edge file."""
        layout = source.layout()
        with RowFile(source.path, source.delimiter, header_line=source.header,
                     wanted=[c.name for c in layout.columns]) as file:  # fmt: skip
            missing = [c.name for c in layout.columns if c.name not in file.names]
            if missing:
                raise InputError(
                    f"{file.name}: column {', '.join(missing)} is missing; there are {', '.join(file.names)}"
                )
            for block, refused in file.blocks(layout.columns, lambda block: _of_kind(block, source.only_where)):
                self.refuse(file.name, refused)
                yield block


def _of_kind(block: CsvBlock, column: str) -> CsvBlock:
    """The rows of which ``column`` is not blank; all without one."""
    if not column:
        return block
    keep = np.asarray(pc.not_equal(pc.utf8_trim_whitespace(_text(block.table, column)), ""), bool)
    lines = Lines(1, block.lines.of(np.flatnonzero(keep)))
    return CsvBlock(block.table.filter(pa.array(keep)).combine_chunks(), lines, block.rejects)


_NODE_ROWS = pa.schema([(name, pa.string()) for name in ("id", "types", "name", "source")])


def _node_rows(
    block: CsvBlock, source: NodeSource, mark: str
) -> tuple[pa.Table, np.ndarray, np.ndarray | None, list[Reject]]:
    rows = block.table.num_rows
    columns = [
        block.table[name].combine_chunks() if name else pa.repeat(pa.scalar(constant, pa.string()), rows)
        for name, constant in ((source.id, ""), (source.type, source.constant), (source.name, ""), (source.source, ""))
    ]
    columns = [c.chunk(0) if isinstance(c, pa.ChunkedArray) else c for c in columns]
    if source.constant and source.type:
        columns[1] = pc.if_else(pc.equal(pc.utf8_trim_whitespace(columns[1]), ""), source.constant, columns[1])
    lines = block.lines.of(np.arange(rows))
    if not source.features:
        return pa.table(columns, _NODE_ROWS), lines, None, []
    values = np.zeros((rows, len(source.features)), np.float32)
    rejects = []
    for place, name in enumerate(source.features):
        values[:, place], wrong = numbers_of(block.table[name].combine_chunks(), mark)
        for row in wrong.tolist():
            shown = block.table[name][row].as_py()
            rejects.append(Reject(int(lines[row]), name, "not a number", shown[:MAX_SHOWN]))
    return pa.table(columns, _NODE_ROWS), lines, values, rejects


def typed_block(block: CsvBlock, source: EdgeSource, known: Catalogue, missing: str) -> tuple[CsvBlock, list[Reject]]:
    """The block with the types of both ends as columns, and a reject for each row of which one cannot be told."""
    rows = block.table.num_rows
    keep, rejects, table = np.ones(rows, bool), list[Reject](), block.table
    if source.prefix and source.relation:
        place = table.schema.get_field_index(source.relation)
        short = pc.replace_substring_regex(_text(table, source.relation), f"^{re.escape(source.prefix)}", "")
        table = table.set_column(place, source.relation, short)
    for side, label in ((source.head, _HEAD_TYPE), (source.tail, _TAIL_TYPE)):
        ids = _text(block.table, side.id)
        given = _text(block.table, side.type) if side.type else None
        if side.constant:
            constant = pa.repeat(pa.scalar(side.constant, pa.string()), rows)
            given = constant if given is None else pc.if_else(pc.equal(given, ""), constant, given)
        place = known.find(given, ids)
        if given is not None:
            by_id = np.asarray(pc.equal(given, ""), bool)
            place = np.where(by_id, known.find(None, ids), place) if by_id.any() else place
        fallback = pa.repeat(pa.scalar(missing, pa.string()), rows)
        if given is not None:
            fallback = pc.if_else(pc.equal(given, ""), fallback, given)
        types = fallback
        if len(known):
            types = pc.if_else(pa.array(place >= 0), known.type.take(pa.array(np.maximum(place, 0))), fallback)
        for row in np.flatnonzero((place == -2) & keep).tolist():
            reason = "nodes of several types have this id; name the type of this end"
            rejects.append(Reject(block.line(row), side.id, reason, ids[row].as_py()[:MAX_SHOWN]))
        keep &= place != -2
        table = table.append_column(label, types)
    if keep.all():
        return replace(block, table=table), rejects
    lines = Lines(1, block.lines.of(np.flatnonzero(keep)))
    return CsvBlock(table.filter(pa.array(keep)).combine_chunks(), lines, []), rejects


def _text(table: pa.Table, name: str) -> pa.StringArray:
    column = table[name].combine_chunks()
    column = column.chunk(0) if isinstance(column, pa.ChunkedArray) else column
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column


def read_graph(
    name: str,
    settings: GraphFilesSettings,
    nodes: Sequence[NodeSource],
    edges: Sequence[EdgeSource],
    *,
    separators: str = "|",
    prefix: str = "",
    listed_first: bool = True,
) -> IngestResult:
    """Nodes, edges and features of all files.

    ``listed_first`` False: the node "files" are columns of the edge files, and nodes are in the order of the edges. Raises
    :class:`InputError` where a file cannot be used, no edge is left, or ``strict`` is set and anything is odd.
    """
    reading = GraphReading(name, settings)
    # What is wrong with columns of edge files is said when these are read as such.
    listing = reading if listed_first else GraphReading(name, settings)
    known = catalogue_of(
        [listing.listed(source) for source in nodes], separators, settings.type_rule, settings.missing_type, prefix
    )
    blocks = ((source, block) for source in edges for block in reading.edges(source))
    return assembled(reading, known, blocks, listed_first=listed_first)


def assembled(
    reading: GraphReading, known: Catalogue, blocks: Iterator[tuple[EdgeSource, CsvBlock]], *, listed_first: bool
) -> IngestResult:
    """The tables of edges in blocks between nodes that ``known`` may list."""
    settings = reading.settings
    side = Side("", "", "", "", "", "")
    assembly, offset = Assembly(False, side, side), 0
    for source, block in blocks:
        ready, refused = typed_block(block, source, known, settings.missing_type)
        reading.refuse(shown(source.path), refused)
        lines = ready.lines.of(np.arange(ready.table.num_rows)) + offset
        offset = int(lines.max(initial=offset))
        assembly.add(*digest(replace(ready, lines=Lines(1, lines)), source.layout()))
    made = assembly.finish()
    if made.edges.num_rows == 0:
        first = [f"; the first reject is in {file}, {found[0].place}" for file, found in reading.rejects[:1]]
        raise InputError(f"{reading.name} has no usable edge{''.join(first)}")
    nodes, tail_of_list, row_of_made, row_of_known = _with_listed(made, known, listed_first)
    places = [pa.array(row_of_made[made.edges[end].to_numpy()].astype(np.int32)) for end in ("head", "tail")]
    table = pa.table([made.edges["relation"], made.edges["display_relation"], *places], EDGES).combine_chunks()
    features, wrong, blank = known.features(row_of_known)
    for file, reject in wrong:
        reading.refuse(file, [reject])
    counts = _counts(reading, made, nodes, table) | {
        "listed_nodes": len(known),
        "nodes_of_several_types": known.several,
        "repeated_node_rows": known.repeated,
        "nodes_without_a_row": tail_of_list if len(known) else 0,
        "listed_nodes_without_edge": nodes.num_rows - made.nodes.num_rows,
        "nodes_with_blank_features": blank,
    }
    found = problems(counts)
    if settings.strict and found:
        raise InputError(f"{reading.name}: strict is set, and there are {'; '.join(found)}")
    check_table(nodes, NODES, "nodes")
    check_table(table, EDGES, "edges")
    tables = [reject_table(file, rejects) for file, rejects in reading.rejects]
    return IngestResult(
        nodes,
        table,
        pa.concat_tables([REJECTS.empty_table(), *tables]),
        features,
        {key: value for key, value in counts.items() if value or key in ("rows", "rejected_rows")},
        [*described_counts(counts, indexed=False), *_notes(counts, settings), *reading.notes],
    )


def _with_listed(made: Assembled, known: Catalogue, listed_first: bool) -> tuple[pa.Table, int, np.ndarray, np.ndarray]:
    """The nodes of edges and files; how many no file lists; the row of each of the edges' nodes, and of each listed one."""
    own = made.nodes.combine_chunks()
    types = own["type"].cast(pa.string()).combine_chunks()
    ids = own["id"].combine_chunks()
    types, ids = (c.chunk(0) if isinstance(c, pa.ChunkedArray) else c for c in (types, ids))
    mark = "\x1f"
    keys = pc.binary_join_element_wise(types, ids, mark)
    if not len(known):
        return own, own.num_rows, np.arange(own.num_rows), np.zeros(0, np.int64)
    known_keys = pc.binary_join_element_wise(known.type, known.id, mark)
    place = np.asarray(pc.fill_null(pc.index_in(keys, value_set=known_keys), -1), np.int64)
    unlisted = np.flatnonzero(place < 0)
    if listed_first:
        row_of_known = np.arange(len(known))
        row_of_made = place.copy()
        row_of_made[unlisted] = len(known) + np.arange(len(unlisted))
    else:
        row_of_made = np.arange(own.num_rows)
        row_of_known = np.full(len(known), -1, np.int64)
        row_of_known[place[place >= 0]] = np.flatnonzero(place >= 0)
        rest = np.flatnonzero(row_of_known < 0)
        row_of_known[rest] = own.num_rows + np.arange(len(rest))
    total = len(known) + len(unlisted)
    from_known, from_made = np.full(total, -1, np.int64), np.full(total, -1, np.int64)
    from_known[row_of_known] = np.arange(len(known))
    from_made[row_of_made] = np.arange(own.num_rows)
    columns: dict[str, Any] = {"index": pa.array(np.arange(total))}
    for part in ("id", "type", "name", "source"):
        listed = getattr(known, part).take(pa.array(np.maximum(from_known, 0)))
        other = own[part].cast(pa.string()).take(pa.array(np.maximum(from_made, 0)))
        other = other.combine_chunks() if isinstance(other, pa.ChunkedArray) else other
        use = (from_known >= 0) & (np.asarray(pc.not_equal(listed, ""), bool) | (from_made < 0))
        columns[part] = pc.if_else(pa.array(use), listed, other)
    columns["name"] = pc.if_else(pc.equal(columns["name"], ""), columns["id"], columns["name"])
    arrays = [columns["index"], columns["id"], columns["type"].dictionary_encode(), columns["name"],
              columns["source"].dictionary_encode()]  # fmt: skip
    return pa.table(arrays, NODES), len(unlisted), row_of_made, row_of_known


def _counts(reading: GraphReading, made: Assembled, nodes: pa.Table, edges: pa.Table) -> dict[str, int]:
    relation = edges["relation"].combine_chunks().indices.to_numpy()
    head, tail = (edges[end].to_numpy() for end in ("head", "tail"))
    rejected = sum(len(found) for _, found in reading.rejects)
    return {
        "rows": edges.num_rows + rejected,
        "rejected_rows": rejected,
        **asdict(edge_oddities(relation, head, tail, nodes.num_rows)),
        **asdict(node_oddities(nodes, False)),
        "nodes_with_two_names": made.renamed,
        "nodes_with_two_sources": made.resourced,
        "nodes": nodes.num_rows,
        "edges": edges.num_rows,
    }


def _notes(counts: dict[str, int], settings: GraphFilesSettings) -> list[str]:
    how = {"rarest": "each has the one of fewest nodes", "first": "each has the first", "last": "each has the last"}
    words = {
        "nodes_of_several_types": f"nodes have several types; {how.get(settings.type_rule, 'they are joined')} (type_rule)",
        "repeated_node_rows": "rows of node files repeat a node; what the first says counts",
        "nodes_without_a_row": "nodes are in edges and in no node file",
        "listed_nodes_without_edge": "listed nodes are in no edge; they are nodes all the same",
        "nodes_with_blank_features": "listed nodes have a blank feature; they have none",
    }
    return [f"{counts[name]:,} {text}" for name, text in words.items() if counts[name]]
