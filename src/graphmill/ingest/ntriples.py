"""The format ``ntriples``: RDF as N-Triples (or N-Quads, whose graph names are ignored), one statement per line.

``rdf:type`` gives a node its types and ``rdfs:label`` (also ``skos:prefLabel`` and ``schema:name``) its name; other
statements with a literal as object are left out and counted; all others are edges. Ids are IRIs without brackets.
What has a true ``owl:deprecated`` or the like is left out, and so is the statement that it is about, if it is one.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from graphmill.ingest.files import guarded, lines_of, path_text
from graphmill.ingest.format import Candidate, Format, all_types
from graphmill.ingest.graph_files import finished
from graphmill.ingest.graph_sources import GraphReading, is_withdrawn
from graphmill.ingest.kg_assemble import Assembled, Assembly, ends_of
from graphmill.ingest.node_tables import MISSING_TYPE, Catalogue, catalogue_of, listed_rows, text_of
from graphmill.ingest.tables import KEEP_NEGATED, MAX_SHOWN, IngestResult, Reject
from graphmill.settings import Settings

_TYPE = "http://www.w3.org/1999/02/22-rdf-syntax-ns#type"
_LABELS = (
    "http://www.w3.org/2000/01/rdf-schema#label",
    "http://www.w3.org/2004/02/skos/core#prefLabel",
    "http://schema.org/name",
    "https://schema.org/name",
)
_OWL = "http://www.w3.org/2002/07/owl#"
_WITHDRAWN = {f"{_OWL}DeprecatedClass", f"{_OWL}NegativePropertyAssertion"}
_ABOUT = {
    f"{space}{name}": place
    for space, names in (
        (_OWL, ("annotatedSource", "annotatedProperty", "annotatedTarget")),
        (_OWL, ("sourceIndividual", "assertionProperty", "targetIndividual")),
        ("http://www.w3.org/1999/02/22-rdf-syntax-ns#", ("subject", "predicate", "object")),
        ("https://w3id.org/biolink/vocab/", ("subject", "predicate", "object")),
    )
    for place, name in enumerate(names)
}
"""Predicates by which a node is about a statement, and which part of it their object is."""
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


class NTriplesSettings(Settings):
    """How an ``ntriples`` source is read. Relations and types are shortened to the part of the IRI after the last # or /,
    where the short names stay distinct."""

    keep_negated: bool = KEEP_NEGATED


@guarded
def read_ntriples(path: str | Path, settings: NTriplesSettings | None = None) -> IngestResult:
    """Read a file of N-Triples into nodes, edges and rejects.

    Raises :class:`InputError` if it cannot be read, or if no statement joins two nodes.
    """
    settings = settings or NTriplesSettings()
    reading = GraphReading(path_text(path), keep_negated=settings.keep_negated)
    assembly, edges = Assembly(), list[tuple[str, str, str]]()
    types: list[tuple[str, str]] = []
    labels: dict[str, str] = {}
    about, withdrawn = dict[str, list[str]](), dict[str, None]()
    literals = 0
    for number, raw in lines_of(path):
        text = raw.decode("utf-8", errors="backslashreplace")
        if not text.strip() or text.lstrip().startswith("#"):
            continue
        fault = "not UTF-8 text" if text.encode() != raw else "holds a NUL byte" if "\0" in text else ""
        statement = None if fault else _STATEMENT.fullmatch(text)
        if statement is None:
            reason = fault or "no statement of N-Triples"
            reading.refuse(reading.name, [Reject(number, "", reason, text[:MAX_SHOWN].replace("\0", "\\0"))])
            continue
        subject, predicate = _iri(statement[1] or statement[2]), _iri(statement[3])
        if statement[6] is not None:
            literals += 1
            if predicate in _LABELS:
                labels.setdefault(subject, _unescaped(statement[6]))
            elif is_withdrawn(_end(predicate), statement[6]):
                withdrawn[subject] = None
            continue
        target = _iri(statement[4] or statement[5])
        if predicate == _TYPE:
            types.append((subject, target))
            withdrawn |= {subject: None} if target in _WITHDRAWN else {}
            continue
        if predicate in _ABOUT:
            about.setdefault(subject, ["", "", ""])[_ABOUT[predicate]] = target
        edges.append((subject, predicate, target))
        if len(edges) == _BLOCK_LINES:
            assembly.add(*_block(edges))
            edges = []
    assembly.add(*_block(edges))
    made = assembly.finish()
    negated = {tuple(about[node]) for node in withdrawn if node in about}
    if negated and not settings.keep_negated:
        made, left_out = _without(made, negated)
        reading.counts["negated"] += left_out
    if literals:
        reading.notes.append(f"{literals:,} statements have a literal; labels name nodes, the others were left out")
    predicates = made.edges["relation"].combine_chunks().dictionary.to_pylist()
    short, names = (_short(iris) for iris in ({kind for _, kind in types}, predicates))
    if long := [iri for iri, name in (short | names).items() if iri == name and re.search(r"[#/]", iri)]:
        reading.notes.append(
            f"{len(long):,} relations or types end as another does and keep their whole IRI, such as {long[0][:MAX_SHOWN]}"
        )
    known = catalogue_of([_listed(types, labels, short, withdrawn)])
    made = _typed(made, known, [names.get(iri, iri) for iri in predicates])
    return finished(reading, made, known, listed_first=False)


def _block(edges: list[tuple[str, str, str]]) -> tuple[pa.DictionaryArray, pa.Table]:
    """The ends and edges of some statements. Types are known at the end of the file only."""
    subject, predicate, target = (pa.array([edge[part] for edge in edges], pa.string()) for part in range(3))
    relation = predicate.dictionary_encode()
    rows = pa.table({"relation": relation, "display_relation": relation})
    return ends_of({"id": subject}, {"id": target}), rows


def _typed(made: Assembled, known: Catalogue, relations: list[str]) -> Assembled:
    """The tables with the types of nodes, and with the names of ``relations`` in place of their IRIs."""
    place = known.find(None, text_of(made.nodes, "id"))
    types = pa.repeat(pa.scalar(MISSING_TYPE, pa.string()), len(place))
    if len(known):
        types = pc.if_else(pa.array(place >= 0), known.type.take(pa.array(np.maximum(place, 0))), types)
    nodes = made.nodes.set_column(2, made.nodes.schema.field(2), types.dictionary_encode())
    named = made.edges["relation"].combine_chunks()
    named = pa.DictionaryArray.from_arrays(named.indices, pa.array(relations, pa.string()))
    edges = made.edges
    for column in (0, 1):
        edges = edges.set_column(column, edges.schema.field(column), named)
    return replace(made, nodes=nodes, edges=edges)


def _without(made: Assembled, statements: Collection[tuple[str, ...]]) -> tuple[Assembled, int]:
    """The tables without the edges that are one of the statements (subject, predicate, object), and how many those are."""
    ids, edges = text_of(made.nodes, "id").to_pylist(), made.edges
    rows = zip(*(edges[name].to_pylist() for name in ("head", "relation", "tail")), strict=True)
    kept = [(ids[head], relation, ids[tail]) not in statements for head, relation, tail in rows]
    return replace(made, edges=edges.filter(pa.array(kept, pa.bool_())).combine_chunks()), kept.count(False)


def _listed(
    types: list[tuple[str, str]], labels: dict[str, str], short: dict[str, str], withdrawn: Collection[str]
) -> pa.Table:
    """The typed, named and withdrawn nodes, as rows of a node file."""
    # A label alone does not make a node, because such a subject is in no edge.
    rows = [(node, short.get(kind, kind), labels.get(node, "")) for node, kind in types]
    typed = {node for node, _ in types}
    rows += [(node, "", label) for node, label in labels.items() if node not in typed]
    rows += [(node, "", "") for node in withdrawn if node not in typed and node not in labels]
    ids, kinds, names = (pa.array([row[i] for row in rows], pa.string()) for i in range(3))
    return listed_rows(
        ids, types=kinds, name=names, withdrawn=pa.array([row[0] in withdrawn for row in rows], pa.bool_())
    )


def _short(iris: Iterable[str]) -> dict[str, str]:
    """IRI → the part after its last # or /, for IRIs for which this part is unique."""
    ends = {iri: _end(iri) or iri for iri in iris}
    often = Counter(ends.values())
    twice = {end for end, number in often.items() if number > 1}
    return {iri: iri if end in twice else end for iri, end in ends.items()}


def _end(iri: str) -> str:
    """The part of an IRI after its last # or /."""
    return re.split(r"[#/]", iri.rstrip("#/"))[-1]


def _iri(text: str) -> str:
    r"""An IRI has only numeric escapes: the \n of C:\new is not a line end."""
    return _unescaped(text, _IRI_ESCAPE)


def _unescaped(text: str, escape: re.Pattern[str] = _ESCAPE) -> str:
    if "\\" not in text:
        return text

    def one(escape_of: re.Match[str]) -> str:
        code = escape_of[1]
        if code[0] not in "uU":
            return _PLAIN[code]
        number = int(code[1:], 16)
        return chr(number) if 0 < number <= 0x10FFFF and not 0xD800 <= number <= 0xDFFF else escape_of[0]

    return escape.sub(one, text)


def is_statement(line: str) -> bool:
    """Whether a line is a statement of N-Triples."""
    return _STATEMENT.fullmatch(line) is not None


def _recognises(candidate: Candidate) -> int:
    lines: Sequence[str] = [line for line in candidate.lines if not line.lstrip().startswith("#")]
    fits = sum(map(is_statement, lines))
    return 95 if fits and fits >= 0.9 * len(lines) else 0


FORMAT = Format(
    "ntriples",
    NTriplesSettings,
    "edges",
    _recognises,
    read_ntriples,
    suited=all_types,
    opened=None,
)
