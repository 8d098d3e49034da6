"""The format ``kg_csv``: PrimeKG's ``kg.csv``, or any file with one edge a row, as checked node and edge tables.

The file is CSV, Parquet or JSON lines: its content says which.

Nodes are keyed by the index column where there is one, else by (type, id): ids collide across types. Ids stay strings.
Rows that cannot be used become rejects; what is odd but legal is counted. docs/reference/ingestion.md has the whole table of
outcomes.
"""

from dataclasses import asdict
from pathlib import Path

import pyarrow.compute as pc

from graphmill.errors import InputError
from graphmill.ingest.csv_blocks import Header
from graphmill.ingest.kg_assemble import Assembled, Assembly, first_nodes
from graphmill.ingest.kg_columns import KgCsvSettings, KgLayout, column_names, resolve
from graphmill.ingest.kg_mentions import digest
from graphmill.ingest.kg_notes import describe, problems
from graphmill.ingest.oddities import edge_oddities, node_oddities
from graphmill.ingest.rejects import Reject, reject_table
from graphmill.ingest.rows import RowFile
from graphmill.ingest.tables import EDGES, NODES, IngestResult, check_table


def read_kg_csv(path: str | Path, settings: KgCsvSettings | None = None) -> IngestResult:
    """Read ``path`` (local or URL, plain or gzipped) into ``nodes``, ``edges`` and ``rejects``.

    Raises :class:`InputError` where the file as a whole cannot be used: it is missing, empty or broken off, a mapped
    column is missing, no row is usable, more than ``max_rejects`` rows are not, or ``strict`` is set and anything is
    odd.
    """
    settings = settings or KgCsvSettings()
    with RowFile(path, settings.delimiter, wanted=column_names(settings.columns)) as file:
        layout = resolve(settings.columns, file.names, file.delimiter, file.name)
        assembly, rejects = Assembly(layout.indexed, layout.head, layout.tail), list[Reject]()
        for digested, refused in file.blocks(layout.columns, lambda block: digest(block, layout)):
            rejects += refused
            _check_number(rejects, settings.max_rejects, file.name)
            assembly.add(*digested)
    made = assembly.finish()
    rejects = sorted(rejects + made.rejects)
    _check_number(rejects, settings.max_rejects, file.name)
    if made.edges.num_rows == 0:
        because = f"; {len(rejects):,} rows were rejected, the first on {rejects[0].place}" if rejects else ""
        raise InputError(f"{file.name} has no usable row below its header{because}")
    return _result(file.name, made, rejects, file.header, layout, settings)


def _check_number(rejects: list[Reject], most: int, file: str) -> None:
    if most and len(rejects) > most:
        raise InputError(
            f"{file}: more than {most:,} rows cannot be used; the first on {rejects[0].place}. "
            "Check the format, the delimiter and the column map (max_rejects: 0 reads on regardless)"
        )


def _result(
    file: str, made: Assembled, rejects: list[Reject], header: Header, layout: KgLayout, settings: KgCsvSettings
) -> IngestResult:
    nodes, edges = made.nodes, made.edges
    relation = edges["relation"].combine_chunks().indices.to_numpy()
    of_edges = edge_oddities(relation, edges["head"].to_numpy(), edges["tail"].to_numpy(), nodes.num_rows)
    counts = {
        "rows": edges.num_rows + len(rejects),
        "rejected_rows": len(rejects),
        **asdict(of_edges),
        **asdict(node_oddities(nodes, layout.indexed)),
        "nodes_with_two_names": made.renamed,
        "nodes_with_two_sources": made.resourced,
        "nodes_without_name": made.unnamed if layout.head.name or layout.tail.name else 0,
        "names_with_line_breaks": pc.sum(pc.match_substring(nodes["name"], "\n")).as_py(),
        "ignored_columns": len(layout.ignored),
    }
    found = problems(counts)
    if settings.strict and found:
        first = f" (the first on {rejects[0].place})" if rejects else ""
        raise InputError(f"{file}: strict is set, and there are {'; '.join(found)}{first}")
    if settings.limit_nodes:
        nodes, edges = first_nodes(nodes, edges, settings.limit_nodes)
        if edges.num_rows == 0:
            raise InputError(f"{file}: no edge is left among the first {settings.limit_nodes} nodes; raise limit_nodes")
    counts["nodes_left_out"] = made.nodes.num_rows - nodes.num_rows
    counts["edges_left_out"] = made.edges.num_rows - edges.num_rows
    counts["nodes"], counts["edges"] = nodes.num_rows, edges.num_rows
    check_table(nodes, NODES, "nodes")
    check_table(edges, EDGES, "edges")
    return IngestResult(
        nodes, edges, reject_table(file, rejects), counts=counts, notes=describe(counts, header, layout)
    )
