"""Reads node files and edge files as one graph, for the formats kg_csv, kg_files, kgx, neo4j, ntriples and triples.

Each format assigns roles to columns (:mod:`graphmill.ingest.column_maps`); this module reads them. An edge names its ends
by id. The type of an end comes from the file, from a column, or from the listed node with this id.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from graphmill.errors import InputError
from graphmill.ingest.catalogue import Catalogue, catalogue_of, joined_keys, places_in
from graphmill.ingest.column_maps import EdgeSource, NodeSource
from graphmill.ingest.disk import ColumnWriter, as_column, pieces
from graphmill.ingest.graph_notes import described_counts, listed_notes, problems, spelling_notes
from graphmill.ingest.graph_sources import GraphFilesSettings, GraphReading, numbers_of_edges
from graphmill.ingest.id_coverage import coverage
from graphmill.ingest.kg_assemble import Assembled, Assembly, counts_of, first_nodes
from graphmill.ingest.kg_mentions import text_of
from graphmill.ingest.rejects import reject_table
from graphmill.ingest.tables import EDGES, NO_TIME, NODES, IngestResult, check_table
from graphmill.ingest.times import unit_notes


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
    reading = GraphReading(name, settings.strict, settings.max_rejects, settings.keep_negated)
    # Errors in columns of edge files are reported when they are read as edge files.
    listing = reading if listed_first else GraphReading(name, max_rejects=settings.max_rejects, unread=reading.unread)
    listed = [listing.listed(source) for source in nodes]
    reading.notes += [f"{part.file} lists no node" for part in listed if not len(part.id)]
    known = catalogue_of(listed, separators, settings.type_rule, settings.missing_type, prefix)
    assembly = Assembly(timed=any(source.timestamp for source in edges), numbers=numbers_of_edges(edges))
    for source in edges:
        for block in reading.edges(source, known, settings.missing_type):
            assembly.add(*block)
    made = assembly.finish()
    return finished(reading, made, known, listed_notes(settings, known), listed_first=listed_first)


def finished(
    reading: GraphReading,
    made: Assembled,
    known: Catalogue,
    sentences: Mapping[str, str],
    *,
    listed_first: bool = True,
    named: bool = False,
    indexed: bool = False,
    limit_nodes: int = 0,
) -> IngestResult:
    """The result of a reader, from the nodes of the edges (``made``) and those of the node files (``known``).

    ``sentences``: what a count is said as, beyond :mod:`graphmill.ingest.graph_notes`. ``named``: edges name their nodes.
    ``indexed``: nodes have an index of the source's. ``limit_nodes``: keep the first nodes; 0: all.
    """
    order = {file: place for place, file in enumerate(dict.fromkeys(file for file, _ in reading.rejects))}
    reading.rejects.sort(key=lambda each: (order[each[0]], each[1]))
    if made.edges.num_rows == 0:
        raise InputError(f"{reading.name} has no usable edge{reading.first_reject}")
    nodes, edges, unlisted, row_of_known = _with_listed(made, known, listed_first)
    mixed, notes = unit_notes(made.times, reading.name) if made.times is not None else (0, [])
    features, wrong, blank = known.features(row_of_known)
    for file, reject in wrong:
        reading.refuse(file, [reject])
    counts = counts_of(made, nodes, edges, len(reading.rejects), indexed) | {
        "nodes": nodes.num_rows,
        "edges": edges.num_rows,
        "negated_rows": reading.negated,
        "unsure_rows": reading.unsure,
        "nodes_without_name": made.unnamed if named else 0,
        "names_with_line_breaks": pc.sum(pc.match_substring(nodes["name"], "\n")).as_py(),
        "ignored_columns": sum(map(len, reading.unread.values())),
        "listed_nodes": len(known),
        "nodes_of_several_types": known.several,
        "nodes_without_type": known.untyped,
        "repeated_node_rows": known.repeated,
        "nodes_without_a_row": len(unlisted) if len(known) else 0,
        "listed_nodes_without_edge": nodes.num_rows - made.nodes.num_rows,
        "nodes_with_blank_features": blank,
        "times_of_another_unit": mixed,
        "edges_without_time": int((edges["timestamp"].to_numpy() == NO_TIME).sum()) if made.times is not None else 0,
    }
    unusual = problems(counts)
    if reading.strict and unusual:
        raise InputError(f"{reading.name}: strict is set, and there are {'; '.join(unusual)}{reading.first_reject}")
    if limit_nodes:
        kept, among = first_nodes(nodes, edges, limit_nodes)
        if among.num_rows == 0:
            raise InputError(f"{reading.name}: no edge is left among the first {limit_nodes} nodes; raise limit_nodes")
        counts |= {"nodes_left_out": nodes.num_rows - kept.num_rows, "edges_left_out": edges.num_rows - among.num_rows}
        nodes, edges = kept, among
        counts |= {"nodes": nodes.num_rows, "edges": edges.num_rows}
    check_table(nodes, NODES, "nodes")
    check_table(edges.select(EDGES.names), EDGES, "edges")
    counts["rows"] += reading.negated + reading.unsure
    said = [f"{counts[name]:,} {text}" for name, text in sentences.items() if counts.get(name)]
    own = made.nodes["id"].combine_chunks()
    matches = [coverage("the edges", own, "the node files", known.id)] if len(known) and listed_first else []
    notes += [*(each.sentence for each in matches if each.repair), *spelling_notes(nodes, edges)]
    everything = [*described_counts(counts, indexed), *said, *notes, *reading.unread_note(), *reading.notes]
    return IngestResult(nodes, edges, reject_table(reading.rejects), features, counts, everything, matches)


def _with_listed(
    made: Assembled, known: Catalogue, listed_first: bool
) -> tuple[pa.Table, pa.Table, pa.Array, np.ndarray]:
    """The nodes of edges and files, the edges between them, the ids of the nodes in no node file, and the row of each
    listed node."""
    own = made.nodes.combine_chunks()
    if not len(known):
        return own, made.edges, text_of(own, "id"), np.zeros(0, np.int64)
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
    edges = made.edges
    for end in ("head", "tail"):
        moved, given = ColumnWriter(np.int32), made.edges[end].to_numpy()
        for rows in pieces(len(given), given):
            moved.append(row_of_made[given[rows]])
        edges = edges.set_column(edges.schema.get_field_index(end), edges.schema.field(end), as_column(moved.finish()))
    return pa.table(arrays, NODES), edges, text_of(own, "id").take(pa.array(unlisted)), row_of_known
