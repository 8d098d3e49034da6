"""The counts of ``kg_csv`` as sentences: notes for the report, and the findings that ``strict`` refuses."""

from graphmill.ingest.csv_blocks import Header
from graphmill.ingest.kg_columns import KgLayout

_PROBLEMS = {
    "rejected_rows": ("rejected rows", "cannot be used: see the rejects for line, column and reason"),
    "duplicate_rows": ("duplicate rows", "were kept"),
    "self_loops": ("self loops", "were kept"),
    "half_reversed_pairs": (
        "pairs without their reverse in relations that otherwise have both directions",
        "were kept as they are; the graph's add_reverse: missing completes them",
    ),
    "index_gaps": ("gaps in the index", "do no harm: tables number their rows themselves"),
    "nodes_with_two_names": ("nodes with two names", "have the first one that is not blank"),
    "nodes_with_two_sources": ("nodes with two sources", "have the first one that is not blank"),
    "nodes_without_name": ("nodes without a name", "are shown by their id"),
    "ids_with_two_indices": ("ids with two indices", "are separate nodes: the index is the key"),
    "spaced_ids": ("ids with white space around them", "were kept as written"),
    "lookalike_ids": ("ids that look like another one (Unicode composition)", "were kept apart"),
    "times_of_another_unit": ("times of another unit than most", "were told by their size"),
}
"""What ``strict`` refuses, and a remark for the notes, by count."""


def problems(counts: dict[str, int]) -> list[str]:
    """The findings that ``strict`` refuses, with their numbers."""
    return [f"{counts[name]:,} {words}" for name, (words, _) in _PROBLEMS.items() if counts.get(name)]


def describe(counts: dict[str, int], header: Header, layout: KgLayout) -> list[str]:
    """A sentence for each finding, normalisation or omission."""
    notes = described_counts(counts, layout.indexed)
    if counts["nodes_left_out"]:
        notes.append(f"limit_nodes left out {counts['nodes_left_out']:,} nodes and {counts['edges_left_out']:,} edges")
    if layout.ignored:
        notes.append(f"columns that no part of an edge is mapped to were skipped: {', '.join(layout.ignored)}")
    if header.bom:
        notes.append("a byte order mark at the start was skipped")
    if header.crlf:
        notes.append("lines end in CR LF; read as LF")
    return notes


def described_counts(counts: dict[str, int], indexed: bool) -> list[str]:
    """A sentence for each unusual finding about nodes and edges."""
    notes = [f"{counts[name]:,} {words} {remark}" for name, (words, remark) in _PROBLEMS.items() if counts.get(name)]
    if counts["ids_in_two_types"]:
        key = "by index" if indexed else "by (type, id)"
        notes.append(f"{counts['ids_in_two_types']:,} ids occur in two types; nodes are told apart {key}")
    if counts.get("names_with_line_breaks"):
        notes.append(f"{counts['names_with_line_breaks']:,} names hold a line break, within quotes")
    if counts["one_directional_pairs"] > counts["half_reversed_pairs"]:
        number = counts["one_directional_pairs"] - counts["half_reversed_pairs"]
        notes.append(f"{number:,} of {counts['pairs']:,} pairs are written in one direction only")
    return notes
