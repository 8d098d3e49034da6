"""The format ``kg_csv``: PrimeKG's ``kg.csv``, or any file with one edge per row, as checked node and edge tables.

The file is CSV, Parquet or JSON lines, which is recognised from its content.

Nodes are identified by the index column if there is one, else by (type, id), because ids collide across types. Ids stay
strings. Rows that cannot be used become rejects; what is unusual but valid is counted. docs/reference/ingestion.md has
the complete table of cases.
"""

from collections.abc import Mapping
from pathlib import Path

from graphmill.errors import InputError
from graphmill.ingest.files import path_text
from graphmill.ingest.findings import all_types
from graphmill.ingest.format import Candidate, Format, Guess, table_guess
from graphmill.ingest.graph_files import read_graph
from graphmill.ingest.guard import guarded
from graphmill.ingest.kg_columns import PRIMEKG, KgCsvSettings
from graphmill.ingest.kg_guess import guess_columns, parts_of
from graphmill.ingest.tables import IngestResult


@guarded
def read_kg_csv(path: str | Path, settings: KgCsvSettings | None = None) -> IngestResult:
    """Read ``path`` (local or URL, plain or gzipped) into ``nodes``, ``edges`` and ``rejects``.

    Raises :class:`InputError` if the file as a whole cannot be used: it is missing, empty or truncated, a mapped column
    is missing, or no row is usable.
    """
    settings = settings or KgCsvSettings()
    source = settings.columns.of_file(str(path), settings.delimiter, settings.header)
    return read_graph(
        path_text(path), [source], keep_negated=settings.keep_negated, min_confidence=settings.min_confidence,
        limit_nodes=settings.limit_nodes,
    )  # fmt: skip


def guess(candidate: Candidate, given: Mapping[str, str]) -> Guess:
    """The settings that fit a table. Raises :class:`InputError` if its two ends cannot be told."""
    names, settings, remarks, file = table_guess(candidate, given)
    probe = candidate.probe
    columns, guesses = guess_columns(names if probe is None or probe.header is False else probe.names, given, probe)
    if columns is None:
        raise InputError(
            f"{path_text(candidate.path)}: {guesses[-1]}; name them, such as --columns head_id=…,tail_id=…,relation=… (or "
            "user=…,item=… for interactions)"
        )
    chosen = {name: value for name, value in columns.model_dump().items() if value}
    settings |= {"columns": chosen} if chosen else {}
    if "delimiter" in settings and file.kind == "csv":
        remarks.append(f"the fields are separated by '{settings['delimiter']}'")
    return Guess(settings, [*remarks, *guesses], parts_of(columns))


def _recognises(candidate: Candidate) -> int:
    if set(PRIMEKG) <= set(candidate.columns):
        return 95
    probe = candidate.probe
    if probe is None:
        return 0
    columns, remarks = guess_columns(probe.names, probe=probe)
    if columns is None:
        return 0
    # x and y alone may be numbers of a node as well as ends of an edge.
    if columns.relation_constant and {columns.head_id.lower(), columns.tail_id.lower()} == {"x", "y"}:
        return 20
    if not any("are taken for head and tail" in remark for remark in remarks):
        return 70
    one = probe.one_kind(*(probe.names.index(name) for name in (columns.head_id, columns.tail_id)))
    if one and probe.header is False and columns.relation:
        return 40  # triples, where they are separated by tabs
    if one or (probe.header is not False and probe.place_of("times") is None):
        return 68 if one else 50
    return 20 if one is False and probe.place_of("times") is None else 0


FORMAT = Format("kg_csv", KgCsvSettings, "edges", _recognises, read_kg_csv, guess=guess, suited=all_types)
