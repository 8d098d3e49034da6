"""The format ``ntriples``: RDF as N-Triples (or N-Quads, whose graph names are ignored), one statement per line.

``rdf:type`` gives a node its types and ``rdfs:label`` (also ``skos:prefLabel`` and ``schema:name``) its name; other
statements with a literal as object are left out and counted; all others are edges. Ids are IRIs without brackets.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
from pydantic import model_validator

from graphmill.ingest.catalogue import Listed, catalogue_of
from graphmill.ingest.csv_blocks import CsvBlock, Lines
from graphmill.ingest.files import lines_of, shown
from graphmill.ingest.findings import IngestReport, all_types, examined
from graphmill.ingest.format import Format, Look, lines_preview
from graphmill.ingest.graph_files import assembled
from graphmill.ingest.graph_sources import EdgeSource, GraphFilesSettings, GraphReading
from graphmill.ingest.guard import guarded
from graphmill.ingest.kg_columns import Side
from graphmill.ingest.rejects import Reject
from graphmill.ingest.tables import MAX_SHOWN, IngestResult
from graphmill.settings import setting

_TYPE = "http://www.w3.org/1999/02/22-rdf-syntax-ns#type"
_LABELS = (
    "http://www.w3.org/2000/01/rdf-schema#label",
    "http://www.w3.org/2004/02/skos/core#prefLabel",
    "http://schema.org/name",
    "https://schema.org/name",
)
_TERM = r'<([^<>"{}|^`\s]+)>|(_:[^\s<>"]+)'
_STATEMENT = re.compile(
    rf'\s*+(?:{_TERM})\s*+<([^<>"{{}}|^`\s]+)>\s*+(?:{_TERM}|"((?:[^"\\]|\\.)*)"(?:@[\w-]+|\^\^<[^<>\s]*>)?)'
    r"\s*+(?:<[^<>\s]*>|_:[^\s<>\"]+)?\s*+\.\s*+(?:#.*)?"
)
_NUMBERED = r"u[0-9A-Fa-f]{4}|U[0-9A-Fa-f]{8}"
_IRI_ESCAPE = re.compile(rf"\\({_NUMBERED})")
_ESCAPE = re.compile(rf"\\({_NUMBERED}|[tbnrf\"'\\])")
_PLAIN = {"t": "\t", "b": "\b", "n": "\n", "r": "\r", "f": "\f", '"': '"', "'": "'", "\\": "\\"}
_BLOCK_LINES = 1 << 17
_COLUMNS = ("subject", "predicate", "object")


class NTriplesSettings(GraphFilesSettings):
    """How an ``ntriples`` source is read."""

    short_names: bool = setting(
        True,
        "shorten relations and types to the part of the IRI after the last # or /, if the short names stay distinct",
    )

    @model_validator(mode="after")
    def _in_memory(self) -> NTriplesSettings:
        if self.engine == "duckdb":
            raise ValueError(
                "engine: duckdb cannot read ntriples (a node's type may be anywhere in it); read it as format: triples, "
                "or leave engine out"
            )
        return self


@guarded
def read_ntriples(path: str | Path, settings: NTriplesSettings | None = None) -> IngestResult:
    """Read a file of N-Triples into nodes, edges and rejects.

    Raises :class:`InputError` if it cannot be read, or if no statement joins two nodes.
    """
    settings = settings or NTriplesSettings()
    reading = GraphReading(shown(path), settings)
    edges: list[tuple[str, str, str]] = []
    edge_lines: list[int] = []
    types: list[tuple[str, str]] = []
    labels: dict[str, str] = {}
    literals, wrong = 0, list[Reject]()
    for number, text, is_text in _lines(path):
        if not text.strip() or text.lstrip().startswith("#"):
            continue
        found = _STATEMENT.fullmatch(text) if is_text else None
        if found is None:
            reason = "no statement of N-Triples" if is_text else "not UTF-8 text"
            wrong.append(Reject(number, "", reason, text[:MAX_SHOWN].replace("\0", "\\0")))
            if 0 < settings.max_rejects < len(wrong):
                reading.refuse(reading.name, wrong)
            continue
        subject, predicate = _iri(found[1] or found[2]), _iri(found[3])
        if found[6] is not None:
            literals += 1
            if predicate in _LABELS:
                labels.setdefault(subject, _unescaped(found[6]))
            continue
        target = _iri(found[4] or found[5])
        if predicate == _TYPE:
            types.append((subject, target))
        else:
            edges.append((subject, predicate, target))
            edge_lines.append(number)
    reading.refuse(reading.name, wrong)
    if literals:
        reading.notes.append(f"{literals:,} statements have a literal; labels name nodes, the others were left out")
    short = _short({kind for _, kind in types}) if settings.short_names else {}
    names = _short({predicate for _, predicate, _ in edges}) if settings.short_names else {}
    if long := [iri for iri, shown in (short | names).items() if iri == shown and re.search(r"[#/]", iri)]:
        reading.notes.append(
            f"{len(long):,} relations or types end as another does and keep their whole IRI, such as {long[0][:MAX_SHOWN]}"
        )
    listed = _listed(reading.name, types, labels, short)
    known = catalogue_of(listed, "", settings.type_rule, settings.missing_type)
    source = EdgeSource(reading.name, Side("", "h", "", "", "", ""), Side("", "t", "", "", "", ""), "r")
    blocks = ((source, block) for block in _blocks(edges, edge_lines, names))
    return assembled(reading, known, blocks, listed_first=False)


def _lines(path: str | Path) -> Iterator[tuple[int, str, bool]]:
    """Number and text of each line, and whether it is UTF-8."""
    for number, line in lines_of(path):
        raw = line.removesuffix(b"\r")
        try:
            yield number, raw.decode("utf-8"), True
        except UnicodeDecodeError:
            yield number, raw.decode("utf-8", errors="backslashreplace"), False


def _listed(name: str, types: list[tuple[str, str]], labels: dict[str, str], short: dict[str, str]) -> list[Listed]:
    """The typed and named nodes, as rows of a node file."""
    # A label alone does not make a node, because such a subject is in no edge.
    rows = [(node, short.get(kind, kind), labels.get(node, "")) for node, kind in types]
    typed = {node for node, _ in types}
    rows += [(node, "", label) for node, label in labels.items() if node not in typed]
    ids, kinds, names = (pa.array([row[i] for row in rows], pa.string()) for i in range(3))
    blank = pa.repeat(pa.scalar("", pa.string()), len(rows))
    return [Listed(name, "", ids, kinds, names, blank, np.zeros(len(rows), np.int64))] if rows else []


def _blocks(edges: list[tuple[str, str, str]], lines: list[int], names: dict[str, str]) -> Iterator[CsvBlock]:
    for first in range(0, len(edges), _BLOCK_LINES):
        part = edges[first : first + _BLOCK_LINES]
        columns = {
            "h": pa.array([edge[0] for edge in part], pa.string()),
            "r": pa.array([names.get(edge[1], edge[1]) for edge in part], pa.string()),
            "t": pa.array([edge[2] for edge in part], pa.string()),
        }
        yield CsvBlock(pa.table(columns), Lines(1, np.array(lines[first : first + len(part)], np.int64)))


def _short(iris: Iterable[str]) -> dict[str, str]:
    """IRI → the part after its last # or /, for IRIs for which this part is unique."""
    ends = {iri: re.split(r"[#/]", iri.rstrip("#/"))[-1] or iri for iri in iris}
    often = Counter(ends.values())
    twice = {end for end, number in often.items() if number > 1}
    return {iri: iri if end in twice else end for iri, end in ends.items()}


def _iri(text: str) -> str:
    """An IRI has only numeric escapes: the \\n of C:\\new is not a line end."""
    return _unescaped(text, _IRI_ESCAPE)


def _unescaped(text: str, escape: re.Pattern[str] = _ESCAPE) -> str:
    if "\\" not in text:
        return text

    def one(found: re.Match[str]) -> str:
        code = found[1]
        if code[0] not in "uU":
            return _PLAIN[code]
        number = int(code[1:], 16)
        return chr(number) if number <= 0x10FFFF and not 0xD800 <= number <= 0xDFFF else found[0]

    return escape.sub(one, text)


def _examine(path: str) -> IngestReport:
    return examined(path, "ntriples", lambda: read_ntriples(path), {"name": "graph"}, "hgt", graph=all_types)


def _recognises(look: Look) -> int:
    lines: Sequence[str] = [line for line in look.lines if not line.lstrip().startswith("#")]
    fits = sum(_STATEMENT.fullmatch(line) is not None for line in lines)
    return 95 if fits and fits >= 0.9 * len(lines) else 0


FORMAT = Format(
    "ntriples",
    NTriplesSettings,
    "edges",
    _examine,
    _recognises,
    read_ntriples,
    preview=lambda location, settings, role: lines_preview(location, _COLUMNS, None),
)
