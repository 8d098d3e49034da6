"""Reads the rows of the files of graphs: nodes in full, edges block by block."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from graphmill.errors import listed
from graphmill.ingest.cells import RowBlock, parsed_column, times_of
from graphmill.ingest.column_maps import EdgeEnd, EdgeSource, NodeSource
from graphmill.ingest.kg_assemble import ends_of
from graphmill.ingest.names import as_number, plain_name, without_blanks
from graphmill.ingest.node_tables import (
    LISTED,
    MISSING_TYPE,
    Catalogue,
    category_of,
    listed_rows,
    places_in,
    text_of,
)
from graphmill.ingest.row_files import RowFile
from graphmill.ingest.tables import EDGE_NUMBERS, EVIDENCE, MAX_SHOWN, Reading, Reject
from graphmill.ingest.times import NO_TIME_THERE, UNTIMED, parse_time

_SHOWN_COLUMNS = 8


@dataclass
class GraphReading(Reading):
    """Reads a graph's files once.

    ``counts``: of rows that say that a link does not hold ("negated"), which are left out unless ``keep_negated``, as are
    withdrawn nodes and their links; of rows below ``min_confidence`` ("unsure"), which are left out; of ids and
    relations that had white space around them ("padded"). ``unread``: the columns of each file that were skipped.
    """

    keep_negated: bool = False
    min_confidence: float = 0.0
    counts: Counter[str] = field(default_factory=Counter)
    unread: dict[str, list[str]] = field(default_factory=dict)

    def unread_note(self) -> list[str]:
        """One sentence on columns that were not used, such as a misspelt one; empty if there are none."""
        parts = [
            f"{listed(names[:_SHOWN_COLUMNS])}{', …' if len(names) > _SHOWN_COLUMNS else ''} of {file.rpartition('/')[2]}"
            for file, names in list(self.unread.items())[:_SHOWN_COLUMNS]
            if names
        ]
        return [f"columns that play no part were skipped: {'; '.join(parts)}"] if parts else []

    def _opened(self, source: NodeSource | EdgeSource) -> RowFile:
        """The open file. Keeps the columns that are skipped: for a file that is read twice, as nodes and as edges, those
        that both skip."""
        names = [column.name for column in source.columns]
        file = RowFile(
            source.path, source.delimiter, header_line=source.header, wanted=names, names=source.names,
            quoted=source.quoted,
        )  # fmt: skip
        left = self.unread.get(file.name, list(file.names))
        self.unread[file.name] = [name for name in left if name and name not in names]
        return file

    def listed(self, source: NodeSource) -> pa.Table:
        """The rows of a node file, with the schema :data:`~graphmill.ingest.node_tables.LISTED`."""
        parts = [LISTED.empty_table()]
        with self._opened(source) as file:
            if not self.keep_negated:
                source = replace(source, negated=self._negations(source, file, _WITHDRAWN))
            for table, refused in file.blocks(
                source.columns, lambda block: _node_rows(_of_kind(block, source.only_where), source)
            ):
                parts.append(table)
                self.refuse(file.name, refused)
        self.keep_notes(file.name, file.notes)
        if not sum(part.num_rows for part in parts):
            self.notes.append(f"{file.name} lists no node")
        return pa.concat_tables(parts)

    def edges(self, source: EdgeSource, known: Catalogue) -> Iterator[tuple[pa.DictionaryArray, pa.Table]]:
        """The blocks of an edge file. ``known``: nodes with their types."""
        with self._opened(source) as file:
            if not self.keep_negated:
                source = replace(source, negated=self._negations(source, file, _NEGATED))
            for (ends, rows, wrong, counts), refused in file.blocks(
                source.columns, lambda block: self._digest(_of_kind(block, source.only_where), source, known)
            ):
                self.counts += counts
                self.refuse(file.name, [*refused, *wrong])
                yield ends, rows
        self.keep_notes(file.name, file.notes)

    def _negations(self, source: NodeSource | EdgeSource, file: RowFile, words: Collection[str]) -> tuple[str, ...]:
        """The columns with these names that say of a row that it does not hold; without a header, any may say NOT."""
        used = {column.name for column in source.columns}
        free = [name for name in file.names if name not in used and file.names.count(name) == 1]
        names = [name for name in free if _parts(name) & set(words)]
        self.unread[file.name] = [name for name in self.unread[file.name] if name not in names]
        return tuple(free if not source.header and isinstance(source, EdgeSource) else names)

    def _digest(
        self, block: RowBlock, source: EdgeSource, known: Catalogue
    ) -> tuple[pa.DictionaryArray, pa.Table, list[Reject], Counter[str]]:
        left_out = Counter[str]()
        if not self.keep_negated:
            negated = _negated_rows(block.table, source.negated, source.relation)
            block, left_out["negated"] = block.rows(~negated), int(negated.sum())
        if source.confidence and self.min_confidence:
            unsure = _numbers(block.table, source.confidence, math.nan)[0] < self.min_confidence
            block, left_out["unsure"] = block.rows(~unsure), int(unsure.sum())
        ends, rows, rejects, counts = edge_rows(block, source, known)
        return ends, rows, rejects, counts + left_out


def _numbers(table: pa.Table, name: str, nothing: float) -> tuple[np.ndarray, list[tuple[int, str]]]:
    """float32 values of a column's cells, ``nothing`` for one that is blank or no finite number, and rows of the latter."""
    return parsed_column(
        category_of(table, name), lambda text: as_number(text) if text else nothing, nothing, np.float32
    )


_WORDS = ("deprecated", "obsolete", "retracted", "withdrawn", "deleted", "removed", "negated", "refuted", "rejected")
_TRUE = ("true", "t", "yes", "y", "x", "1", "1.0", *_WORDS)
_FALSE = ("false", "f", "no", "n", "0", "0.0")
_WITHDRAWN = {f"{is_}{word}": _TRUE for word in _WORDS[:6] for is_ in ("", "is_")} | {
    "status": _WORDS,
    "invalid_reason": ("d", "u"),
}
_NEGATED = (
    _WITHDRAWN
    | {f"{is_}{word}": _TRUE for word in ("negated", "negation", "negative", "not") for is_ in ("", "is_")}
    | {f"{is_}{word}": _FALSE for word in ("active", "valid", "current") for is_ in ("", "is_")}
    | dict.fromkeys(("qualifier", "qualifiers", "modifier"), _WORDS)
)
"""Names of columns, and the values by which they say of a node, or of a statement, that it does not hold (any more)."""
_WORDED = {name for name, words in _NEGATED.items() if words is _WORDS}
_NOT = r"^\s*NOT([|;,:_-]|$|\s)"


def _parts(name: str) -> set[str]:
    """The plain words around the colons of a column's name, without that of what they are about: ``negated:boolean``,
    ``owl:deprecated``, ``predicate_negated``."""
    return {re.sub("^(edge|evidence|predicate|relation|statement)_", "", plain_name(part)) for part in name.split(":")}


def is_withdrawn(name: str, text: str) -> bool:
    """Whether ``text`` in a property of this name says that what has it does not hold (any more)."""
    word = text.strip().lower()
    return word in _TRUE and word in _NEGATED.get(plain_name(name), ())


def _negated_rows(table: pa.Table, names: Sequence[str], relation: str = "") -> np.ndarray:
    """Which rows (bool) say in these columns, or by ``NOT|`` before their relation, that they do not hold."""
    negated = np.zeros(table.num_rows, bool)
    for name in (*names, *([relation] if relation else [])):
        column, parts = category_of(table, name), _parts(name) if name != relation else set()
        texts = pc.utf8_lower(pc.utf8_trim_whitespace(column.dictionary))
        says = pc.match_substring_regex(column.dictionary, _NOT, ignore_case=bool(parts & _WORDED))
        for part in parts & set(_NEGATED):
            says = pc.or_(says, pc.is_in(texts, pa.array(_NEGATED[part])))
        if pc.any(says, min_count=0).as_py():
            negated |= np.asarray(says, bool)[column.indices.to_numpy()]
    return negated


def _of_kind(block: RowBlock, column: str) -> RowBlock:
    """The rows in which ``column`` is not blank; all rows if no column is given."""
    if not column:
        return block
    keep = np.asarray(pc.not_equal(pc.utf8_trim_whitespace(text_of(block.table, column)), ""), bool)
    return block.rows(keep)


def _node_rows(block: RowBlock, source: NodeSource) -> pa.Table:
    texts = {name: text_of(block.table, getattr(source, name)) for name in ("id", "name", "source")}
    types = text_of(block.table, source.type, source.constant)
    if source.constant and source.type:
        types = pc.if_else(pc.equal(pc.utf8_trim_whitespace(types), ""), source.constant, types)
    withdrawn = pa.array(_negated_rows(block.table, source.negated))
    return listed_rows(**texts, types=types, withdrawn=withdrawn, space=source.space or source.constant)


def edge_rows(
    block: RowBlock, source: EdgeSource, known: Catalogue
) -> tuple[pa.DictionaryArray, pa.Table, list[Reject], Counter[str]]:
    """The ends and the edges of a block for :class:`~graphmill.ingest.kg_assemble.Assembly`; a reject for each row with an
    ambiguous end, a wrong time or a wrong number; and how many ids and relations were trimmed."""
    table, faulty, counts = block.table, dict[int, Reject](), Counter[str]()

    def refuse(row: int, column: str, reason: str, value: str) -> None:
        faulty.setdefault(row, Reject(int(block.lines[row]), column, reason, value[:MAX_SHOWN]))

    if source.trimmed:
        table, counts["padded"] = _trimmed(table, (source.head.id, source.relation, source.tail.id))
    ids = known.id, source.listed_only
    for column, (held, file) in ((source.head.id, ids), (source.relation, source.relations), (source.tail.id, ids)):
        if file:
            texts = text_of(table, column)
            for row in np.flatnonzero(places_in(texts, held) < 0).tolist():
                refuse(row, column, f"is not in {file}", texts[row].as_py())
    columns: dict[str, Any] = {"line": block.lines} if source.head.index else {}
    for side, end in (("head_type", source.head), ("tail_type", source.tail)):
        columns[side], ambiguous = _types(table, end, known)
        reason = "nodes of several types have this id; name the type of this end"
        for row in ambiguous.tolist():
            refuse(row, end.id, reason, table[end.id][row].as_py())
    measures, wrong = _measures(table, source)
    for row, column, reason, value in wrong:
        refuse(row, column, reason, value)
    rows = pa.table({name: pa.array(values) for name, values in (columns | measures).items()})
    if faulty:
        keep = np.ones(table.num_rows, bool)
        keep[list(faulty)] = False
        table, rows = (each.filter(pa.array(keep)).combine_chunks() for each in (table, rows))
    relation = category_of(table, source.relation, source.relation_constant)
    if source.prefix:
        short = pc.replace_substring_regex(relation.dictionary, f"^{re.escape(source.prefix)}", "")
        relation = pa.DictionaryArray.from_arrays(relation.indices, short)
    ends = []
    for end, of_type in ((source.head, rows["head_type"]), (source.tail, rows["tail_type"])):
        ends.append({part: text_of(table, getattr(end, part)) for part in ("id", "name", "source")})
        ends[-1]["type"] = of_type.combine_chunks()
        ends[-1] |= {"index": table[end.index].combine_chunks()} if end.index else {}
    display = category_of(table, source.display_relation) if source.display_relation else relation
    made: dict[str, Any] = {"relation": relation, "display_relation": display}
    made |= {EVIDENCE: category_of(table, source.evidence)} if source.evidence else {}
    made |= {} if source.split is None else {"split": np.full(table.num_rows, source.split, np.uint8)}
    made |= {name: rows[name] for name in rows.column_names if not name.endswith("_type")}
    return ends_of(*ends), pa.table(made), list(faulty.values()), counts


def _measures(table: pa.Table, source: EdgeSource) -> tuple[dict[str, np.ndarray], list[tuple[int, str, str, str]]]:
    """Times, weights and confidences of edges; and row, column, reason and text of each cell that cannot be read."""
    columns, wrong = dict[str, np.ndarray](), list[tuple[int, str, str, str]]()
    if source.timestamp:
        column = category_of(table, source.timestamp)
        times, cells = times_of(column, lambda text: parse_time(text) if text else UNTIMED)
        columns |= {"timestamp": times["second"], "unit": times["unit"]}
        wrong += [(row, source.timestamp, NO_TIME_THERE, text) for row, text in cells]
    for name, nothing in EDGE_NUMBERS.items():
        if number_of := getattr(source, name):
            columns[name], cells = _numbers(table, number_of, nothing)
            wrong += [(row, number_of, "not a finite number", text) for row, text in cells]
    return columns, wrong


def _trimmed(table: pa.Table, names: Sequence[str]) -> tuple[pa.Table, int]:
    """The table without white space around the texts of some columns, and the number of texts that had some."""
    padded = 0
    for name in names:
        ids, spaced = without_blanks(category_of(table, name))
        if spaced:
            padded += spaced
            table = table.set_column(table.schema.get_field_index(name), name, ids.cast(pa.string()))
    return table, padded


def _types(table: pa.Table, end: EdgeEnd, known: Catalogue) -> tuple[pa.StringArray, np.ndarray]:
    """The type of the end of each row, and the rows whose id is that of nodes of several types.

    The type is that of the listed node with this id; else the one that the row has, or :data:`MISSING_TYPE`.
    """
    given = text_of(table, end.type, end.constant)
    if end.type and end.constant:
        given = pc.if_else(pc.equal(given, ""), end.constant, given)
    blank = np.asarray(pc.equal(given, ""), bool)
    types = pc.if_else(pa.array(blank), MISSING_TYPE, given) if blank.any() else given
    if not len(known):
        return types, np.zeros(0, np.int64)
    ids = text_of(table, end.id)
    place = known.find(None, ids) if blank.all() else known.find(given, ids)
    if blank.any() and not blank.all():
        place = np.where(blank, known.find(None, ids), place)
    listed_types = known.type.take(pa.array(np.maximum(place, 0)))
    return pc.if_else(pa.array(place >= 0), listed_types, types), np.flatnonzero(place == -2)
