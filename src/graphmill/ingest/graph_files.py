"""Reads node files and edge files as one graph, for the formats kg_files, kgx, neo4j and ntriples.

Each format assigns roles to columns (:class:`NodeSource`, :class:`EdgeSource`); this module reads them. An edge names
its ends by id. The type of an end comes from the file, from a column, or from the listed node with this id.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from graphmill.errors import InputError
from graphmill.ingest.catalogue import Catalogue, catalogue_of, joined_keys, places_in
from graphmill.ingest.csv_blocks import CsvBlock, Lines
from graphmill.ingest.disk import DiskArray, InMemory, as_column, pieces
from graphmill.ingest.engine import choose
from graphmill.ingest.files import shown
from graphmill.ingest.graph_sources import (
    HEAD_TYPE,
    TAIL_TYPE,
    EdgeSource,
    GraphFilesSettings,
    GraphReading,
    NodeSource,
)
from graphmill.ingest.kg_assemble import Assembled, Assembly, counts_of
from graphmill.ingest.kg_columns import Side
from graphmill.ingest.kg_disk import DiskAssembly
from graphmill.ingest.kg_mentions import digest, edge_times, text_of
from graphmill.ingest.kg_notes import described_counts, problems
from graphmill.ingest.rejects import Reject, reject_table
from graphmill.ingest.tables import EDGES, MAX_SHOWN, NO_TIME, NODES, IngestResult, check_table
from graphmill.ingest.times import NO_TIME_THERE, unit_notes

_SHOWN_TYPES = 8


def typed_block(block: CsvBlock, source: EdgeSource, known: Catalogue, missing: str) -> tuple[CsvBlock, list[Reject]]:
    """The block with the types of both ends as columns, and a reject for each row with an end of unknown type."""
    rows = block.table.num_rows
    keep, rejects, table = np.ones(rows, bool), list[Reject](), block.table
    if source.prefix and source.relation:
        place = table.schema.get_field_index(source.relation)
        short = pc.replace_substring_regex(text_of(table, source.relation), f"^{re.escape(source.prefix)}", "")
        table = table.set_column(place, source.relation, short)
    for side, label in ((source.head, HEAD_TYPE), (source.tail, TAIL_TYPE)):
        ids = text_of(block.table, side.id)
        given = text_of(block.table, side.type) if side.type else None
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
    for row, text in edge_times(block.table, source.timestamp)[2].items() if source.timestamp else ():
        if keep[row]:
            rejects.append(Reject(block.line(row), source.timestamp, NO_TIME_THERE, text[:MAX_SHOWN]))
            keep[row] = False
    if keep.all():
        return replace(block, table=table), rejects
    lines = Lines(1, block.lines.of(np.flatnonzero(keep)))
    return CsvBlock(table.filter(pa.array(keep)).combine_chunks(), lines, []), rejects


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

    ``listed_first`` False: the node "files" are columns of the edge files, and nodes are in the order of the edges.
    Raises :class:`InputError` if a file cannot be used, if no edge is left, or if ``strict`` is set and anything is
    unusual.
    """
    reading = GraphReading(name, settings)
    # Errors in columns of edge files are reported when they are read as edge files.
    listing = reading if listed_first else GraphReading(name, settings, unread=reading.unread)
    listed = [listing.listed(source) for source in nodes]
    reading.notes += [f"{part.file} lists no node" for part in listed if not len(part.id)]
    known = catalogue_of(listed, separators, settings.type_rule, settings.missing_type, prefix)
    blocks = ((source, block) for source in edges for block in reading.edges(source))
    timed = any(source.timestamp for source in edges)
    on_disk = choose(settings.engine, {source.path: None for source in edges})
    return assembled(reading, known, blocks, listed_first=listed_first, timed=timed, on_disk=on_disk)


def assembled(
    reading: GraphReading,
    known: Catalogue,
    blocks: Iterator[tuple[EdgeSource, CsvBlock]],
    *,
    listed_first: bool,
    timed: bool = False,
    on_disk: bool = False,
) -> IngestResult:
    """The tables from blocks of edges, whose nodes ``known`` may list. ``timed``: some of the edges have times.

    ``on_disk``: assemble out of core.
    """
    settings = reading.settings
    side, offset = Side("", "", "", "", "", ""), 0
    assembly = (DiskAssembly if on_disk else Assembly)(False, side, side, timestamp="timestamp" if timed else "")
    for source, block in blocks:
        ready, refused = typed_block(block, source, known, settings.missing_type)
        reading.refuse(shown(source.path), refused)
        lines = ready.lines.of(np.arange(ready.table.num_rows)) + offset
        offset = int(lines.max(initial=offset))
        mentions, edges = digest(replace(ready, lines=Lines(1, lines)), source.layout())
        if timed and edges.timestamp is None:
            edges = replace(edges, timestamp=np.full(len(lines), NO_TIME), unit=np.zeros(len(lines), np.uint8))
        assembly.add(mentions, edges)
    made = assembly.finish()
    if made.edges.num_rows == 0:
        first = [f"; the first reject is in {file}, {reject.place}" for file, reject in reading.rejects[:1]]
        raise InputError(f"{reading.name} has no usable edge{''.join(first)}")
    nodes, tail_of_list, row_of_made, row_of_known = _with_listed(made, known, listed_first)
    table = made.edges.select(EDGES.names)
    for end in ("head", "tail"):
        moved = DiskArray(np.int32) if on_disk else InMemory(np.int32)
        given = made.edges[end].to_numpy()
        for part in pieces(len(given), given):
            moved.append(row_of_made[given[part]])
        table = table.set_column(table.schema.get_field_index(end), end, as_column(moved.finish()))
    table = table.cast(EDGES).combine_chunks()
    mixed, notes = unit_notes(made.times, reading.name) if made.times is not None else (0, [])
    if timed:
        table = table.append_column("timestamp", made.edges["timestamp"].chunk(0))
    features, wrong, blank = known.features(row_of_known)
    for file, reject in wrong:
        reading.refuse(file, [reject])
    counts = counts_of(made, nodes, table, len(reading.rejects), indexed=False) | {
        "nodes": nodes.num_rows,
        "edges": table.num_rows,
        "listed_nodes": len(known),
        "nodes_of_several_types": known.several,
        "nodes_without_type": known.untyped,
        "repeated_node_rows": known.repeated,
        "nodes_without_a_row": tail_of_list if len(known) else 0,
        "listed_nodes_without_edge": nodes.num_rows - made.nodes.num_rows,
        "nodes_with_blank_features": blank,
        "times_of_another_unit": mixed,
        "edges_without_time": int((table["timestamp"].to_numpy() == NO_TIME).sum()) if timed else 0,
    }
    found = problems(counts)
    if settings.strict and found:
        raise InputError(f"{reading.name}: strict is set, and there are {'; '.join(found)}")
    check_table(nodes, NODES, "nodes")
    check_table(table.select(EDGES.names), EDGES, "edges")
    return IngestResult(
        nodes,
        table,
        reject_table(reading.rejects),
        features,
        {key: value for key, value in counts.items() if value or key in ("rows", "rejected_rows")},
        [
            *described_counts(counts, indexed=False),
            *_notes(counts, settings, known),
            *notes,
            *reading.unread_note(),
            *reading.notes,
        ],
    )


def _with_listed(made: Assembled, known: Catalogue, listed_first: bool) -> tuple[pa.Table, int, np.ndarray, np.ndarray]:
    """The nodes of edges and files; the number of nodes in no node file; the row of each of the edges' nodes, and of
    each listed node."""
    own = made.nodes.combine_chunks()
    if not len(known):
        return own, own.num_rows, np.arange(own.num_rows), np.zeros(0, np.int64)
    place = places_in(joined_keys(text_of(own, "type"), text_of(own, "id")), joined_keys(known.type, known.id))
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
        other = text_of(own, part).take(pa.array(np.maximum(from_made, 0)))
        use = (from_known >= 0) & (np.asarray(pc.not_equal(listed, ""), bool) | (from_made < 0))
        columns[part] = pc.if_else(pa.array(use), listed, other)
    columns["name"] = pc.if_else(pc.equal(columns["name"], ""), columns["id"], columns["name"])
    arrays = [columns["index"], columns["id"], columns["type"].dictionary_encode(), columns["name"],
              columns["source"].dictionary_encode()]  # fmt: skip
    return pa.table(arrays, NODES), len(unlisted), row_of_made, row_of_known


def _numbered(known: Catalogue) -> str:
    """The types of listed nodes with their counts, as text."""
    found = sorted(pc.value_counts(known.type).to_pylist(), key=lambda each: -each["counts"])
    shown = [f"{each['counts']:,} {each['values'][:MAX_SHOWN]}" for each in found[:_SHOWN_TYPES]]
    return ", ".join(shown + ["…"] * (len(found) > _SHOWN_TYPES))


def _notes(counts: dict[str, int], settings: GraphFilesSettings, known: Catalogue) -> list[str]:
    how = {"rarest": "each has the one of fewest nodes", "first": "each has the first", "last": "each has the last"}
    rule = how.get(settings.type_rule, "they are joined")
    words = {
        "nodes_of_several_types": f"nodes have several types; {rule} (type_rule): {_numbered(known)}",
        "nodes_without_type": f"listed nodes have no type; they are of type {settings.missing_type} (missing_type)",
        "repeated_node_rows": "rows of node files repeat a node; what the first says counts",
        "nodes_without_a_row": "nodes are in edges and in no node file",
        "listed_nodes_without_edge": "listed nodes are in no edge; they are nodes all the same",
        "nodes_with_blank_features": "listed nodes have a blank feature; they have none",
    }
    return [f"{counts[name]:,} {text}" for name, text in words.items() if counts[name]]
