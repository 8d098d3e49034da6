"""The format ``kg_csv``: PrimeKG's ``kg.csv``, or any file with one edge per row, as checked node and edge tables.

The file is CSV, Parquet or JSON lines, which is recognised from its content.

Nodes are identified by the index column if there is one, else by (type, id), because ids collide across types. Ids stay
strings. Rows that cannot be used become rejects; what is unusual but valid is counted. docs/reference/ingestion.md has
the complete table of cases.
"""

from pathlib import Path
from typing import Any

from graphmill.errors import InputError
from graphmill.ingest.catalogue import catalogue_of
from graphmill.ingest.files import shown
from graphmill.ingest.findings import IngestReport, all_types, examined, listed_columns
from graphmill.ingest.format import Format, Look
from graphmill.ingest.graph_files import finished
from graphmill.ingest.graph_sources import GraphReading
from graphmill.ingest.guard import guarded
from graphmill.ingest.kg_assemble import Assembly
from graphmill.ingest.kg_columns import PRIMEKG, KgCsvSettings
from graphmill.ingest.kg_guess import guess_columns, parts_of
from graphmill.ingest.row_files import RowFile
from graphmill.ingest.tables import IngestResult


@guarded
def read_kg_csv(path: str | Path, settings: KgCsvSettings | None = None) -> IngestResult:
    """Read ``path`` (local or URL, plain or gzipped) into ``nodes``, ``edges`` and ``rejects``.

    Raises :class:`InputError` if the file as a whole cannot be used: it is missing, empty or truncated, a mapped column
    is missing, no row is usable, more than ``max_rejects`` rows are not, or ``strict`` is set and anything is unusual.
    """
    settings = settings or KgCsvSettings()
    source = settings.columns.of_file(str(path), settings.delimiter)
    indexed, nowhere = bool(source.head.index), catalogue_of([], "", "first", "")
    reading = GraphReading(shown(path), settings.strict, settings.max_rejects)
    assembly = Assembly(indexed=indexed, timed=bool(source.timestamp))
    for block in reading.edges(source, nowhere, ""):
        assembly.add(*block)
    made = assembly.finish(source.head, source.tail)
    reading.refuse(reading.name, made.rejects)
    named = bool(source.head.name or source.tail.name)
    return finished(reading, made, nowhere, {}, named=named, indexed=indexed, limit_nodes=settings.limit_nodes)


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


FORMAT = Format("kg_csv", KgCsvSettings, "edges", examine, _recognises, read_kg_csv)
