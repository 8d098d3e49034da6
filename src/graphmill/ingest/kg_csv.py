"""The format ``kg_csv``: PrimeKG's ``kg.csv``, or any table with one edge per row, as checked node and edge tables.

Nodes are identified by the index column if there is one, else by (type, id), because ids collide across types.
docs/reference/ingestion.md has the complete table of cases.
"""

import re
from collections.abc import Iterable, Mapping
from itertools import product
from pathlib import Path

from graphmill.errors import InputError, listed
from graphmill.ingest.column_maps import PRIMEKG, KgColumns, KgCsvSettings
from graphmill.ingest.files import guarded, path_text
from graphmill.ingest.format import Candidate, Format, Guess, all_types, table_guess
from graphmill.ingest.graph_files import read_graph
from graphmill.ingest.names import (
    END_NAMES,
    END_WORDS,
    RELATION_NAMES,
    Probe,
    as_number,
    column_of,
    numbered_pair,
    plain_name,
    row_number_note,
    stem_of,
    without_row_numbers,
)
from graphmill.ingest.node_tables import MISSING_TYPE
from graphmill.ingest.tables import EDGE_NUMBERS, EVIDENCE, IngestResult

_EDGE_IDS = ("id", "edge_id", "uuid", "key")
_PARTS = {
    "index": ("index", "idx"),
    "id": ("id", "identifier", "curie", "", "node", "node_id", "code", "key", "entity"),
    "type": ("type", "category", "kind", "class"),
    "name": ("name", "label", "title"),
    "source": ("source", "vocabulary", "database", "db"),
}
_FEWER = 3
"""How many times fewer values than each end a last column has that is taken for the relation by its number of values."""
_DISPLAY = ("display_relation", "relation_label", "predicate_label")
_NO_TYPES = {"node", "id", "entity", "interactor", "vertex", "x", "n", "v", "item", "name", "code"}
"""Words for any node, which are no type of nodes."""


def guess_columns(
    header: tuple[str, ...], given: Mapping[str, str] | None = None, probe: Probe | None = None
) -> tuple[KgColumns | None, list[str]]:
    """A column map for ``header``, with a remark on each guess; None if the two ends cannot be found.

    PrimeKG's twelve columns give the empty map. ``given``: parts of the map that are known, which stay as they are.
    ``probe``: the first rows, by whose values ends are found where the header's words show none; without it, the first
    and the last of two or three columns are taken.
    """
    given = dict(given or {})
    if probe is not None and not given and _is_gaf(probe):
        relation = "3" if all(row[3].strip() for row in probe.rows) else "8"
        why = f"these are annotations of genes (GAF): column 1 is the head, 4 the tail, {relation} the relation"
        columns = KgColumns(head_id="1", head_type="11", head_name="2", head_source="0", tail_id="4",
                            tail_type_constant="term", relation=relation)  # fmt: skip
        return columns, [why]
    if set(PRIMEKG) <= set(header) and not given:
        return KgColumns(), []
    header, left_out = (tuple(names) for names in without_row_numbers(header, tuple(given.values())))
    plain = {plain_name(name): name for name in reversed(header)}
    remarks = [row_number_note(left_out)] if left_out else []
    columns_of, why = _ends_of(header, plain, given, probe)
    if not columns_of:
        return None, [*remarks, f"no two columns could be told to be the ends of an edge among {listed(header)}"]
    remarks += [why] if why else []
    taken = {*columns_of.values(), *given.values()} - {""}
    free = [name for name in header if name not in taken]
    when = column_of("timestamp", free) or next((plain[n] for n in ("year",) if plain.get(n) in free), "")
    relation = next((plain[n] for n in RELATION_NAMES if n in plain and plain[n] in free), "")
    if not relation and not when and len(free) == 1 and len(header) == 3 and free[0].lower() not in _EDGE_IDS:
        named = probe is None or free[0] not in probe.names or probe.has_words(probe.names.index(free[0]))
        relation = free[0] if named else ""
        numbers = f"has numbers and is not taken for the relation; --columns relation={free[0]} does"
        remarks.append(f"column {free[0]} {'is taken for the relation' if named else numbers}")
    display = next((plain[n] for n in _DISPLAY if n in plain and plain[n] in free and plain[n] != relation), "")
    measures = {n: plain[n] for n in EDGE_NUMBERS if plain.get(n) in free and probe and _are_numbers(probe, plain[n])}
    measures |= {EVIDENCE: plain[EVIDENCE]} if plain.get(EVIDENCE) in free else {}
    remarks += [f"column {name} is taken for the edge's {part}" for part, name in measures.items() if part not in given]
    columns_of |= {"relation": relation, "display_relation": display, "timestamp": when} | measures | given
    if when and "timestamp" not in given:
        remarks.append(f"column {when} is taken for the edge's time")
    if not columns_of["relation"] and not columns_of.get("relation_constant"):
        columns_of["relation_constant"] = "related_to"
        remarks.append("there seems to be no column for the relation: all edges are called related_to")
    for end in ("head", "tail"):
        if not columns_of.get(f"{end}_type") and not columns_of.get(f"{end}_type_constant"):
            columns_of[f"{end}_type_constant"] = MISSING_TYPE
    if MISSING_TYPE in (kinds := [columns_of.get(f"{end}_type_constant") for end in ("head", "tail")]):
        what = "nodes" if kinds == [MISSING_TYPE, MISSING_TYPE] else "heads" if kinds[0] == MISSING_TYPE else "tails"
        remarks.append(f"there seems to be no column for the type of {what}: all are of type {MISSING_TYPE}; change it")
    for part in ("relation", "head_type", "tail_type"):
        if part in given or columns_of.get(part):
            columns_of.pop(f"{part}_constant" if f"{part}_constant" not in given else part, None)
    return KgColumns(**{k: v for k, v in columns_of.items() if v}), remarks


def _is_gaf(probe: Probe) -> bool:
    """Whether the rows are a Gene Association File, which has no header: by its aspect, its taxon and its date."""
    shapes = ((8, r"[FPC]"), (12, r"taxon:\d+(\|taxon:\d+)?"), (13, r"\d{8}"))
    return probe.header is False and all(
        len(row) in (15, 16, 17) and all(re.fullmatch(shape, row[place].strip()) for place, shape in shapes)
        for row in probe.rows
    )


def _are_numbers(probe: Probe, name: str) -> bool:
    """Whether the cells of a column that are not blank are numbers; no cell is none."""
    cells = probe.values(probe.names.index(name)) if name in probe.names else []
    return bool(cells) and all(as_number(cell) is not None for cell in cells)


def _ends_of(
    header: tuple[str, ...], plain: dict[str, str], given: Mapping[str, str], probe: Probe | None
) -> tuple[dict[str, str], str]:
    """The columns of both ends by part, and why, empty if their names say so; no columns if they cannot be found."""
    if given.get("head_id") and given.get("tail_id"):
        ends = {end: given[end] for end in ("head_id", "tail_id")}
        words = [plain_name(name).removesuffix("_id") for name in ends.values()]
        return _ends(plain, [(words[0], words[1])]) | ends, ""
    if columns_of := _ends(plain, END_NAMES):
        return columns_of, ""
    if columns_of := _ends(plain, _typed_pair(plain)):
        return (
            columns_of,
            f"column {columns_of['head_id']} is the head and {columns_of['tail_id']} the tail: each has a column of types",
        )
    if (probe is None or probe.header is not False) and (pair := numbered_pair(header)):
        kind = stem_of(pair[0])
        why = f"{pair[0]} and {pair[1]} are the ends of an edge by their names: nodes of one kind"
        return _pair(*pair, kind if kind not in _NO_TYPES else "node"), why
    if probe is None:
        if len(header) not in (2, 3):
            return {}, ""
        return _pair(header[0], header[-1]), f"{header[0]} and {header[-1]} are taken for head and tail: first and last"
    return _ends_by_values(header, probe)


def _ends_by_values(header: tuple[str, ...], probe: Probe) -> tuple[dict[str, str], str]:
    places = [place for place in probe.ids if probe.names[place] in header]
    if len(words := [place for place in places if probe.has_words(place)]) == 2:
        places = words
    if len(places) == 3 and len(probe.names) in (3, 4):
        middle = next((p for p in places if plain_name(probe.names[p]) in RELATION_NAMES), None)
        if middle is None:  # the relation has far fewer values, or values of another kind
            a, b, c = places
            of_a, of_b, of_c = (len(set(probe.values(place))) for place in places)
            # Never the first: the rows of a file that is sorted begin with few heads.
            named = probe.header is not False and not probe.names[a].isdigit()
            few = named and _FEWER * of_c <= min(of_a, of_b)
            middle = c if few or (probe.one_kind(a, b) and not probe.one_kind(a, c)) else b
        places = [place for place in places if place != middle]
    if len(places) != 2:
        return {}, ""
    first, second = (probe.names[place] for place in places)
    if plain_name(first) in _PARTS["id"] and plain_name(second) in _PARTS["name"]:  # a table of nodes
        return {}, ""
    one = probe.one_kind(*places)
    kinds = [plain_name(name).removesuffix("_id") for name in (first, second)]
    if one is not False or probe.header is False or set(kinds) & (END_WORDS | _NO_TYPES):
        kinds = ["node", "node"]
    why = "their ids are of one kind" if one else "they are the two columns of ids"
    which = "columns" if probe.header is not False else "columns number"
    return _pair(first, second, *kinds), f"{which} {first} and {second} are taken for head and tail: {why}"


def _pair(head: str, tail: str, kind: str = "node", other: str = "") -> dict[str, str]:
    return {"head_id": head, "tail_id": tail, "head_type_constant": kind, "tail_type_constant": other or kind}


def _typed_pair(plain: dict[str, str]) -> list[tuple[str, str]]:
    """The two words that have an id and a type each (``drug, drug_type, …, target, target_type``), if there are two."""
    if not any(name in plain for name in RELATION_NAMES):
        return []
    typed = [name.rpartition("_") for name in reversed(plain)]
    words = [word for word, _, kind in typed if word and kind in _PARTS["type"] and word not in RELATION_NAMES]
    pairs = [word for word in dict.fromkeys(words) if _part(plain, word, "id")]
    return [(pairs[0], pairs[1])] if len(pairs) == 2 else []


def _ends(plain: dict[str, str], pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Columns of both ends, from the first pair of words that matches two ids."""
    for words in pairs:
        sides = [{part: _part(plain, word, part) for part in _PARTS} for word in words]
        if all(side["id"] for side in sides) and sides[0]["id"] != sides[1]["id"]:
            if not all(side["index"] for side in sides):
                sides = [side | {"index": ""} for side in sides]
            return {f"{end}_{part}": name for end, side in zip(("head", "tail"), sides, strict=True)
                    for part, name in side.items()}  # fmt: skip
    return {}


def _part(plain: dict[str, str], word: str, part: str) -> str:
    patterns = (f"{word}_{suffix}".rstrip("_") for suffix in _PARTS[part])
    joined = (f"{word}{suffix}" for suffix in _PARTS[part] if suffix and len(word) > 1)
    swapped = (f"{a}_{b}" for a, b in product(_PARTS[part], (word,)) if a)
    return next((plain[name] for name in (*patterns, *joined, *swapped) if name in plain), "")


def parts_of(columns: KgColumns) -> dict[str, str]:
    """The role of each column, or its roles."""
    roles: dict[str, str] = {}
    for role, name in columns.or_primekg().model_dump().items():
        if name and not role.endswith("_constant"):
            roles[name] = f"{roles[name]}, {role}" if name in roles else role
    return roles


@guarded
def read_kg_csv(path: str | Path, settings: KgCsvSettings | None = None) -> IngestResult:
    """Read ``path`` (local or URL, plain or gzipped) into ``nodes``, ``edges`` and ``rejects``.

    Raises :class:`InputError` if the file cannot be read, a mapped column is missing, or no row is usable.
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
