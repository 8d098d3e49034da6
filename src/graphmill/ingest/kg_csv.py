"""The format ``kg_csv``: PrimeKG's ``kg.csv``, or any file with one edge per row, as checked node and edge tables.

The file is CSV, Parquet or JSON lines, which is recognised from its content.

Nodes are identified by the index column if there is one, else by (type, id), because ids collide across types. Ids stay
strings. Rows that cannot be used become rejects; what is unusual but valid is counted. docs/reference/ingestion.md has
the complete table of cases.
"""

from pathlib import Path
from typing import Any

import pyarrow.compute as pc

from graphmill.errors import InputError
from graphmill.ingest.csv_blocks import Header
from graphmill.ingest.engine import choose
from graphmill.ingest.files import shown
from graphmill.ingest.findings import IngestReport, all_types, examined, listed_columns
from graphmill.ingest.format import Format, Look
from graphmill.ingest.guard import guarded
from graphmill.ingest.kg_assemble import Assembled, Assembly, counts_of, first_nodes
from graphmill.ingest.kg_columns import PRIMEKG, KgCsvSettings, KgLayout, column_names, resolve
from graphmill.ingest.kg_disk import DiskAssembly
from graphmill.ingest.kg_guess import guess_columns, parts_of
from graphmill.ingest.kg_mentions import digest
from graphmill.ingest.kg_notes import describe, problems
from graphmill.ingest.rejects import Reject, reject_table
from graphmill.ingest.row_files import RowFile
from graphmill.ingest.tables import EDGES, NO_TIME, NODES, IngestResult, check_table
from graphmill.ingest.times import unit_notes


@guarded
def read_kg_csv(path: str | Path, settings: KgCsvSettings | None = None) -> IngestResult:
    """Read ``path`` (local or URL, plain or gzipped) into ``nodes``, ``edges`` and ``rejects``.

    Raises :class:`InputError` if the file as a whole cannot be used: it is missing, empty or truncated, a mapped column
    is missing, no row is usable, more than ``max_rejects`` rows are not, or ``strict`` is set and anything is unusual.
    """
    settings = settings or KgCsvSettings()
    with RowFile(path, settings.delimiter, wanted=column_names(settings.columns)) as file:
        layout = resolve(settings.columns, file.names, file.delimiter, file.name)
        kind = DiskAssembly if choose(settings.engine, [path]) else Assembly
        assembly, rejects = kind(layout.indexed, layout.head, layout.tail, layout.timestamp), list[Reject]()
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
    counts = {
        **counts_of(made, nodes, edges, len(rejects), layout.indexed),
        "nodes_without_name": made.unnamed if layout.head.name or layout.tail.name else 0,
        "names_with_line_breaks": pc.sum(pc.match_substring(nodes["name"], "\n")).as_py(),
        "ignored_columns": len(layout.ignored),
    }
    unit_note: list[str] = []
    if made.times is not None:
        counts["times_of_another_unit"], unit_note = unit_notes(made.times, file)
        counts["edges_without_time"] = int((edges["timestamp"].to_numpy() == NO_TIME).sum())
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
    check_table(edges.select(EDGES.names), EDGES, "edges")
    refused = reject_table((file, reject) for reject in rejects)
    return IngestResult(nodes, edges, refused, counts=counts, notes=[*describe(counts, header, layout), *unit_note])


def examine(path: str) -> IngestReport:
    """A report on the file, read with a guessed column map."""
    try:
        with RowFile(path) as file:
            names, mark, first = file.names, file.delimiter, next(iter(file.first(1)), {})
    except InputError as error:
        return IngestReport(shown(path), "kg_csv", problem=str(error))
    columns, remarks = guess_columns(names)
    listed = listed_columns(names, parts_of(columns) if columns is not None else {}, first)
    word = {"\t": "tab"}.get(mark, mark)
    if mark != ",":
        remarks = [f"the fields are separated by '{word}'", *remarks]
    if columns is None:
        problem = "no column map could be guessed: write one (columns: {head_id: …, tail_id: …, relation: …})"
        return IngestReport(shown(path), "kg_csv", listed, remarks, problem)
    source: dict[str, Any] = {"name": "edges", "format": "kg_csv", "path": shown(path)}
    chosen = {name: value for name, value in columns.model_dump().items() if value}
    source |= ({"delimiter": word} if mark != "," else {}) | ({"columns": chosen} if chosen else {})
    settings = KgCsvSettings(columns=columns, delimiter=mark)
    return examined(
        path, "kg_csv", lambda: read_kg_csv(path, settings), source, "hgt",
        columns=listed, remarks=remarks, graph=all_types,
    )  # fmt: skip


def _recognises(look: Look) -> int:
    if set(PRIMEKG) <= set(look.columns):
        return 95
    columns, remarks = guess_columns(look.columns) if look.columns else (None, [])
    if columns is None:
        return 0
    # x and y alone may be numbers of a node as well as ends of an edge.
    coordinates = columns.relation_constant and {columns.head_id.lower(), columns.tail_id.lower()} == {"x", "y"}
    return 20 if coordinates or any("is taken for the head" in remark for remark in remarks) else 70


FORMAT = Format("kg_csv", KgCsvSettings, "edges", examine, _recognises, read_kg_csv, out_of_core=True)
