"""Reads node files and edge files as one graph, for the formats kg_csv, kg_files, ntriples and triples.

Each format assigns roles to columns (:mod:`graphmill.ingest.column_maps`); this module reads them. An edge names its ends
by id. The type of an end comes from the file, from a column, or from the listed node with this id.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from graphmill.errors import InputError
from graphmill.ingest.column_maps import EdgeSource, NodeSource
from graphmill.ingest.graph_sources import GraphReading
from graphmill.ingest.id_columns import coverage
from graphmill.ingest.kg_assemble import Assembled, Assembly, first_nodes, without_nodes
from graphmill.ingest.node_tables import MISSING_TYPE, Catalogue, catalogue_of, merged_nodes
from graphmill.ingest.tables import MAX_SHOWN, NO_TIME, IngestResult, sentences
from graphmill.ingest.times import unit_notes


def edge_oddities(relation: np.ndarray, head: np.ndarray, tail: np.ndarray, nodes: int) -> dict[str, int]:
    """``duplicate_rows``: rows with the (relation, head, tail) of an earlier row; ``self_loops``: rows with head = tail.

    The edges are three int32 arrays; ``nodes`` is the number of nodes. It sorts one 64-bit key a row, relation by relation.
    """
    kinds = int(relation.max(initial=0)) + 1
    order = np.argsort(relation.astype(np.uint16) if kinds < 2**16 else relation, kind="stable")
    starts, duplicates = np.flatnonzero(np.diff(relation[order], prepend=-1)), 0
    for rows in np.split(order, starts[1:]):
        key = np.sort(head[rows].astype(np.int64) * nodes + tail[rows])
        duplicates += int(np.count_nonzero(key[1:] == key[:-1]))
    return {"duplicate_rows": duplicates, "self_loops": int(np.count_nonzero(head == tail))}


def one_writing(ids: pa.Array) -> pa.Array:
    """Ids in one writing: composed Unicode, no white space around them, ``7`` for ``7.0`` and ``007``."""
    if not pc.all(pc.string_is_ascii(ids)).as_py():
        ids = pc.utf8_normalize(ids, "NFC")
    return pc.replace_substring_regex(pc.utf8_trim_whitespace(ids), r"^([+-]?)0*([0-9]+?)(\.0+)?$", r"\1\2")


_UNSEEN = ("Zs", "Cc", "Cf")
"""Unicode categories of blanks and of invisible characters."""
_JOINT = re.compile(r"(?<=[^\W\d_])[-_]+(?=[^\W\d_])")
"""Marks between words, not between numbers."""


def spellings(names: Iterable[str]) -> list[tuple[str, ...]]:
    """The names that differ only by case, Unicode form, or blanks and marks between words, in groups."""
    groups: dict[str, list[str]] = {}
    for name in names:
        visible = [c for c in unicodedata.normalize("NFKC", name).casefold() if unicodedata.category(c) not in _UNSEEN]
        groups.setdefault(_JOINT.sub("", "".join(visible)), []).append(name)
    return [tuple(group) for group in groups.values() if len(group) > 1]


def node_oddities(nodes: pa.Table) -> dict[str, int]:
    """Counts over a ``nodes`` table: ids of several types, of several indices, with white space around them, and that are
    words for no value; ``lookalike_ids`` differ from another one of their type only in their writing (:func:`one_writing`).
    """
    ids, types = nodes["id"].combine_chunks(), nodes["type"].combine_chunks()
    by_type = pa.table({"id": ids, "type": types.indices})
    distinct = by_type.group_by(["id", "type"]).aggregate([([], "count_all")])
    several = distinct.group_by("id").aggregate([([], "count_all")])
    composed = pa.table({"id": one_writing(distinct["id"]), "type": distinct["type"]})
    composed = composed.group_by(["id", "type"]).aggregate([])
    odd = {
        "ids_in_two_types": pc.greater(several["count_all"], 1),
        "ids_with_two_indices": pc.greater(distinct["count_all"], 1),
        "spaced_ids": pc.not_equal(pc.utf8_trim_whitespace(ids), ids),
        "ids_of_no_value": pc.is_in(pc.utf8_lower(ids), pa.array(("nan", "none", "null", "<na>", "nat"))),
    }
    counts = {name: pc.sum(each).as_py() or 0 for name, each in odd.items()}
    return counts | {"lookalike_ids": distinct.num_rows - composed.num_rows}


_SHOWN_TYPES = 8
_SENTENCES = {
    "rejected_rows": "{} rejected rows cannot be used: see the rejects for line, column and reason",
    "duplicate_rows": "{} duplicate rows are one edge each in the graph",
    "self_loops": "{} self loops were kept",
    "nodes_with_two_names": "{} nodes with two names have the first one that is not blank",
    "nodes_with_two_sources": "{} nodes with two sources have the first one that is not blank",
    "nodes_without_name": "{} nodes without a name are shown by their id",
    "ids_with_two_indices": "{} ids with two indices are separate nodes: the index is the key",
    "spaced_ids": "{} ids with white space around them were kept as written",
    "lookalike_ids": "{} ids that look like another one (Unicode composition, blanks around, 7 and 7.0 or 007) were kept "
    "apart",
    "ids_of_no_value": "{} ids that are words for no value (NaN, None, null) were kept as written",
    "times_of_another_unit": "{} times of another unit than most were told by their size",
    "negated_rows": "{} rows say that a link does not hold (negated, NOT, deprecated or of a deprecated node) and were left "
    "out; keep_negated: true keeps them",
    "withdrawn_nodes": "{} nodes are deprecated, obsolete, retracted or withdrawn and were left out; keep_negated: true "
    "keeps them",
    "unsure_rows": "{} rows are below min_confidence and were left out",
    "padded_ids": "{} ids and relations have white space around them; it was taken off",
    "names_with_line_breaks": "{} names hold a line break, within quotes",
    "nodes_without_type": f"{{}} listed nodes have no type; they are of type {MISSING_TYPE}",
    "repeated_node_rows": "{} rows of node files repeat a node; what the first says counts",
    "nodes_without_a_row": "{} nodes are in edges and in no node file",
    "listed_nodes_without_edge": "{} listed nodes are in no edge; they are nodes all the same",
}


def read_graph(
    name: str,
    edges: Sequence[EdgeSource],
    nodes: Sequence[NodeSource] = (),
    *,
    listed: Sequence[pa.Table] = (),
    relations: Sequence[str] = (),
    keep_negated: bool = False,
    min_confidence: float = 0.0,
    separators: str = "",
    prefix: str = "",
    listed_first: bool = True,
    limit_nodes: int = 0,
) -> IngestResult:
    """Nodes and edges of all files.

    ``listed``: nodes that are known already. ``relations``: the first relations, in their order. ``min_confidence``: rows
    with a smaller confidence are left out. ``listed_first`` False: the node "files" are columns of the edge files, and
    nodes are in the order of the edges. ``limit_nodes``: keep the first nodes and the edges among them; 0: all. Raises
    :class:`InputError` if a file cannot be used, or if no edge is left.
    """
    if min_confidence and not any(source.confidence for source in edges):
        raise InputError(f"{name}: min_confidence needs a column of confidence; name it in columns.confidence")
    reading = GraphReading(name, keep_negated=keep_negated, min_confidence=min_confidence)
    # Errors in columns of edge files are reported when they are read as edge files.
    listing = reading if listed_first else GraphReading(name, keep_negated=True, unread=reading.unread)
    known = catalogue_of([*listed, *(listing.listed(source) for source in nodes)], separators, prefix)
    assembly = Assembly(edges, relations)
    for source in edges:
        for block in reading.edges(source, known):
            assembly.add(*block)
    made = assembly.finish()
    reading.refuse(name, made.rejects)
    return finished(reading, made, known, edges, listed_first=listed_first, limit_nodes=limit_nodes)


def finished(
    reading: GraphReading,
    made: Assembled,
    known: Catalogue,
    edges_from: Sequence[EdgeSource] = (),
    *,
    listed_first: bool = True,
    limit_nodes: int = 0,
) -> IngestResult:
    """The result of a reader, from the nodes of the edges (``made``) and those of the node files (``known``)."""
    indexed = any(source.head.index for source in edges_from)
    named = not len(known) and any(source.head.name or source.tail.name for source in edges_from)
    nodes, edges, listed, withdrawn = _with_listed(made, known, listed_first)
    in_edges, gone = made.nodes.num_rows, 0 if reading.keep_negated else int(withdrawn.sum())
    if gone:
        nodes, edges, in_edges = without_nodes(nodes, edges, withdrawn, listed)
        reading.counts["negated"] += made.edges.num_rows - edges.num_rows
    if edges.num_rows == 0:
        why = f"; {reading.counts['negated']:,} say that a link does not hold (keep_negated: true keeps them)"
        raise InputError(
            f"{reading.name} has no usable edge{reading.first_reject}{why if reading.counts['negated'] else ''}"
        )
    mixed, notes, untimed = 0, list[str](), 0
    if made.units is not None:
        mixed, notes = unit_notes(reading.name, made.edges["timestamp"].to_numpy(), None, made.units)
        untimed = int((edges["timestamp"].to_numpy() == NO_TIME).sum())
    relation, head, tail = (edges[name].chunk(0) for name in ("relation", "head", "tail"))
    counts = {
        "rows": edges.num_rows + reading.refused,
        "rejected_rows": reading.refused,
        **edge_oddities(relation.indices.to_numpy(), head.to_numpy(), tail.to_numpy(), nodes.num_rows),
        **node_oddities(nodes),
        "nodes_with_two_names": made.renamed,
        "nodes_with_two_sources": made.resourced,
        "nodes": nodes.num_rows,
        "edges": edges.num_rows,
        "negated_rows": reading.counts["negated"],
        "withdrawn_nodes": gone,
        "unsure_rows": reading.counts["unsure"],
        "padded_ids": reading.counts["padded"],
        "nodes_without_name": made.unnamed if named else 0,
        "names_with_line_breaks": pc.sum(pc.match_substring(nodes["name"], "\n")).as_py(),
        "ignored_columns": sum(map(len, reading.unread.values())),
        "listed_nodes": len(known),
        "nodes_of_several_types": known.several,
        "nodes_without_type": known.untyped,
        "repeated_node_rows": known.repeated,
        "nodes_without_a_row": int((~listed).sum()) if len(known) else 0,
        "listed_nodes_without_edge": nodes.num_rows - in_edges,
        "times_of_another_unit": mixed,
        "edges_without_time": untimed,
    }
    if limit_nodes:
        kept, among = first_nodes(nodes, edges, limit_nodes)
        if among.num_rows == 0:
            raise InputError(f"{reading.name}: no edge is left among the first {limit_nodes} nodes; raise limit_nodes")
        counts |= {"nodes_left_out": nodes.num_rows - kept.num_rows, "edges_left_out": edges.num_rows - among.num_rows}
        nodes, edges = kept, among
        counts |= {"nodes": nodes.num_rows, "edges": edges.num_rows}
    counts["rows"] += reading.counts["negated"] + reading.counts["unsure"]
    ids = made.nodes["id"].combine_chunks()
    matches = [coverage("the edges", ids, "the node files", known.id)] if len(known) and listed_first else []
    notes += [*(each.sentence for each in matches if each.repair), *_spelling_notes(nodes, edges)]
    numbers = sorted(pc.value_counts(known.type).to_pylist(), key=lambda each: -each["counts"])
    types = [f"{each['counts']:,} {each['values'][:MAX_SHOWN]}" for each in numbers[:_SHOWN_TYPES]]
    types += ["…"] * (len(numbers) > _SHOWN_TYPES)
    texts = _SENTENCES | {
        "ids_in_two_types": f"{{}} ids occur in two types; nodes are told apart by {'index' if indexed else '(type, id)'}",
        "nodes_of_several_types": f"{{}} nodes have several types; each has the one of fewest nodes: {', '.join(types)}",
        "nodes_left_out": f"limit_nodes left out {{}} nodes and {counts.get('edges_left_out', 0):,} edges",
    }
    everything = [*sentences(counts, texts), *notes, *reading.unread_note(), *reading.notes]
    return IngestResult(nodes, edges, reading.table(), {}, counts, everything, matches)


def _with_listed(
    made: Assembled, known: Catalogue, listed_first: bool
) -> tuple[pa.Table, pa.Table, np.ndarray, np.ndarray]:
    """The nodes of edges and files, the edges between them, and which nodes are in a node file and which are withdrawn."""
    of_edges = made.nodes.combine_chunks()
    if not len(known):
        return of_edges, made.edges, *np.zeros((2, of_edges.num_rows), bool)
    if listed_first:
        nodes, (row_of_known, row_of_made) = merged_nodes(known.table(), of_edges)
    else:
        nodes, (row_of_made, row_of_known) = merged_nodes(of_edges, known.table())
    edges = made.edges
    for end in ("head", "tail"):
        moved = pa.array(row_of_made[edges[end].to_numpy()].astype(np.int32))
        edges = edges.set_column(edges.schema.get_field_index(end), edges.schema.field(end), moved)
    marks = np.zeros((2, nodes.num_rows), bool)
    marks[0, row_of_known] = marks[1, row_of_known[known.withdrawn]] = True
    return nodes, edges, *marks


def _spelling_notes(nodes: pa.Table, edges: pa.Table) -> list[str]:
    """A sentence for each node type, or relation, that is written in two ways."""
    notes = []
    for what, column in (("node types", nodes["type"]), ("relations", edges["relation"])):
        used = sorted(pc.unique(column.cast(pa.string())).to_pylist())
        for group in spellings(used):
            writings = " and ".join(repr(name[:MAX_SHOWN]) for name in group)
            notes.append(f"the {what} {writings} differ only by case, blanks or marks; they were kept apart")
    negated = {name: re.sub(r"(?i)^(not|neg|does[ _-]not)[ _:-]", "", name) for name in used}  # of relations
    return notes + [
        f"the relation {name!r} is {rest!r} negated, by its name; its links were kept as a relation of their own"
        for name, rest in negated.items()
        if rest != name and rest in used
    ]
