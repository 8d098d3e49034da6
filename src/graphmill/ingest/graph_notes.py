"""The counts of a graph's nodes and edges as sentences for the report."""

from __future__ import annotations

import re

import pyarrow as pa
import pyarrow.compute as pc

from graphmill.ingest.catalogue import MISSING_TYPE, Catalogue
from graphmill.ingest.oddities import spellings
from graphmill.ingest.rejects import sentences
from graphmill.ingest.tables import MAX_SHOWN

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
}


def described_counts(counts: dict[str, int], indexed: bool) -> list[str]:
    """A sentence for each unusual finding about nodes and edges."""
    notes = sentences(counts, _SENTENCES)
    if counts["ids_in_two_types"]:
        key = "by index" if indexed else "by (type, id)"
        notes.append(f"{counts['ids_in_two_types']:,} ids occur in two types; nodes are told apart {key}")
    if counts.get("nodes_left_out"):
        notes.append(f"limit_nodes left out {counts['nodes_left_out']:,} nodes and {counts['edges_left_out']:,} edges")
    return notes


def spelling_notes(nodes: pa.Table, edges: pa.Table) -> list[str]:
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


def _numbered(known: Catalogue) -> str:
    """The types of listed nodes with their counts, as text."""
    numbers = sorted(pc.value_counts(known.type).to_pylist(), key=lambda each: -each["counts"])
    texts = [f"{each['counts']:,} {each['values'][:MAX_SHOWN]}" for each in numbers[:_SHOWN_TYPES]]
    return ", ".join(texts + ["…"] * (len(numbers) > _SHOWN_TYPES))


def listed_notes(known: Catalogue) -> dict[str, str]:
    """What the counts about node files are said as."""
    return {
        "nodes_of_several_types": f"{{}} nodes have several types; each has the one of fewest nodes: {_numbered(known)}",
        "nodes_without_type": f"{{}} listed nodes have no type; they are of type {MISSING_TYPE}",
        "repeated_node_rows": "{} rows of node files repeat a node; what the first says counts",
        "nodes_without_a_row": "{} nodes are in edges and in no node file",
        "listed_nodes_without_edge": "{} listed nodes are in no edge; they are nodes all the same",
    }
