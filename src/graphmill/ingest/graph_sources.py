"""Reads the rows of the files of graphs: nodes in full, edges block by block."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from graphmill.errors import InputError, listed
from graphmill.ingest.catalogue import MISSING_TYPE, Catalogue, Listed
from graphmill.ingest.cells import RowBlock
from graphmill.ingest.column_maps import EdgeEnd, EdgeSource, NodeSource
from graphmill.ingest.kg_assemble import EdgeRows
from graphmill.ingest.kg_mentions import category_of, digest, mentions_of, text_of
from graphmill.ingest.names import as_number, plain_name, without_blanks
from graphmill.ingest.rejects import Reading, Reject
from graphmill.ingest.row_files import RowFile
from graphmill.ingest.tables import EDGE_NUMBERS, MAX_SHOWN, NO_TIME
from graphmill.ingest.times import NO_TIME_THERE, parse_time

_SHOWN_COLUMNS = 8


@dataclass
class GraphReading(Reading):
    """Reads a graph's files once.

    ``negated``: number of rows that say that a link does not hold, which are left out unless ``keep_negated``, as are
    withdrawn nodes and their links. ``unsure``:
    number of rows below a source's ``min_confidence``, which are left out. ``padded``: number of ids and relations that had
    white space around them. ``unread``: the columns of each file that were
    skipped.
    """

    keep_negated: bool = False
    negated: int = 0
    unsure: int = 0
    padded: int = 0
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
        try:
            file.require(names)
        except InputError:
            file.close()
            raise
        left = self.unread.get(file.name, list(file.names))
        self.unread[file.name] = [name for name in left if name and name not in names]
        return file

    def listed(self, source: NodeSource) -> Listed:
        """The rows of a node file."""
        parts: list[pa.Table] = []
        with self._opened(source) as file:
            if not self.keep_negated:
                source = replace(source, negated=self._negations(source, file, _WITHDRAWN))
            for table, refused in file.blocks(
                source.columns, lambda block: _node_rows(_of_kind(block, source.only_where), source)
            ):
                parts.append(table)
                self.refuse(file.name, refused)
        self.keep_notes(file.name, file.notes)
        table = pa.concat_tables([_NODE_ROWS.empty_table(), *parts])
        texts = {name: table[name].combine_chunks() for name in _NODE_ROWS.names}
        return Listed(file.name, source.space or source.constant, **texts)

    def edges(self, source: EdgeSource, known: Catalogue) -> Iterator[tuple[pa.Table, EdgeRows]]:
        """The blocks of an edge file. ``known``: nodes with their types."""
        with self._opened(source) as file:
            if not self.keep_negated:
                source = replace(source, negated=self._negations(source, file, _NEGATED))
            for (negated, unsure, (mentions, rows, wrong)), refused in file.blocks(
                source.columns, lambda block: self._digest(_of_kind(block, source.only_where), source, known)
            ):
                self.negated += negated
                self.unsure += unsure
                self.padded += rows.padded
                self.refuse(file.name, [*refused, *wrong])
                yield mentions, rows
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
    ) -> tuple[int, int, tuple[pa.Table, EdgeRows, list[Reject]]]:
        gone = np.zeros(block.table.num_rows, bool)
        if not self.keep_negated:
            gone = _negated_rows(block.table, source.negated, source.relation)
        kept = block.rows(~gone) if gone.any() else block
        unsure = np.zeros(kept.table.num_rows, bool)
        if source.confidence and source.min_confidence:
            unsure = _numbers(kept.table, source.confidence)[0] < source.min_confidence
            kept = kept.rows(~unsure)
        return int(gone.sum()), int(unsure.sum()), edge_rows(kept, source, known)


def require_confidence(sources: Sequence[EdgeSource], file: str) -> None:
    """Raise :class:`InputError` for a ``min_confidence`` where no file has a column of confidence."""
    if any(source.min_confidence for source in sources) and not any(source.confidence for source in sources):
        raise InputError(f"{file}: min_confidence needs a column of confidence; name it in columns.confidence")


def _numbers(table: pa.Table, name: str) -> tuple[np.ndarray, np.ndarray]:
    """float32 values of a column's cells, NaN for a blank one, and the rows of those that are no finite number."""
    column = category_of(table, name)
    texts = [text.strip() for text in column.dictionary.to_pylist()]
    parsed = [as_number(text) if text else math.nan for text in texts]
    values = np.array([math.nan if number is None else number for number in parsed], np.float32)
    wrong = np.array([number is None for number in parsed], bool)
    codes = column.indices.to_numpy()
    return values[codes], np.flatnonzero(wrong[codes])


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


_NODE_ROWS = pa.schema(
    [*((name, pa.string()) for name in ("id", "types", "name", "source")), ("withdrawn", pa.bool_())]
)


def _node_rows(block: RowBlock, source: NodeSource) -> pa.Table:
    columns = [
        text_of(block.table, name, constant)
        for name, constant in ((source.id, ""), (source.type, source.constant), (source.name, ""), (source.source, ""))
    ]
    if source.constant and source.type:
        columns[1] = pc.if_else(pc.equal(pc.utf8_trim_whitespace(columns[1]), ""), source.constant, columns[1])
    return pa.table([*columns, pa.array(_negated_rows(block.table, source.negated))], _NODE_ROWS)


def edge_rows(block: RowBlock, source: EdgeSource, known: Catalogue) -> tuple[pa.Table, EdgeRows, list[Reject]]:
    """The distinct nodes and the edges of a block, and a reject for each row with an ambiguous end, a wrong time or a wrong
    number."""
    table, rejects, faulty, padded = block.table, list[Reject](), dict[int, Reject](), 0
    if source.trimmed:
        table, padded = _trimmed(table, (source.head.id, source.relation, source.tail.id))
    for place, reject in _unlisted(table, block, source, known):
        faulty.setdefault(place, reject)
    types = []
    for end in (source.head, source.tail):
        of_end, ambiguous = _types(table, end, known)
        types.append(of_end)
        for row in ambiguous.tolist():
            reason, value = "nodes of several types have this id; name the type of this end", table[end.id][row].as_py()
            faulty.setdefault(row, Reject(int(block.lines[row]), end.id, reason, value[:MAX_SHOWN]))
    seconds = units = None
    if source.timestamp:
        seconds, units, wrong = edge_times(table, source.timestamp)
        for row, text in wrong.items():
            faulty.setdefault(row, Reject(int(block.lines[row]), source.timestamp, NO_TIME_THERE, text[:MAX_SHOWN]))
    numbers = {}
    for name, column in (("weight", source.weight), ("confidence", source.confidence)):
        if column:
            values, wrong_rows = _numbers(table, column)
            numbers[name] = np.where(np.isnan(values), np.float32(EDGE_NUMBERS[name]), values)
            for row in wrong_rows.tolist():
                text = text_of(table, column)[row].as_py()[:MAX_SHOWN]
                faulty.setdefault(row, Reject(int(block.lines[row]), column, "not a finite number", text))
    lines = block.lines if source.head.index else np.zeros(0, np.int64)
    if faulty:
        rejects, keep = list(faulty.values()), np.ones(table.num_rows, bool)
        keep[list(faulty)] = False
        where = pa.array(keep)
        table, types = table.filter(where).combine_chunks(), [of_end.filter(where) for of_end in types]
        if seconds is not None and units is not None:
            seconds, units = seconds[keep], units[keep]
        numbers = {name: values[keep] for name, values in numbers.items()}
        lines = lines[keep] if len(lines) else lines
    relation = category_of(table, source.relation, source.relation_constant)
    if source.prefix:
        short = pc.replace_substring_regex(relation.dictionary, f"^{re.escape(source.prefix)}", "")
        relation = pa.DictionaryArray.from_arrays(relation.indices, short)
    display = category_of(table, source.display_relation) if source.display_relation else relation
    evidence = category_of(table, source.evidence) if source.evidence else None
    columns = []
    for end, of_end in zip((source.head, source.tail), types, strict=True):
        columns.append({"id": text_of(table, end.id), "type": of_end})
        columns[-1] |= {part: text_of(table, getattr(end, part)) for part in ("name", "source")}
        if end.index:
            columns[-1] |= {"index": table[end.index].combine_chunks(), "line": pa.array(lines)}
    mentions, heads, tails = digest(mentions_of(*columns))
    return (
        mentions,
        EdgeRows(heads, tails, relation, display, lines, seconds, units, source.split, padded, numbers, evidence),
        rejects,
    )


def _trimmed(table: pa.Table, names: Sequence[str]) -> tuple[pa.Table, int]:
    """The table without white space around the texts of some columns, and the number of texts that had some."""
    padded = 0
    for name in names:
        ids, spaced = without_blanks(category_of(table, name))
        if spaced:
            padded += spaced
            table = table.set_column(table.schema.get_field_index(name), name, ids.cast(pa.string()))
    return table, padded


def _unlisted(table: pa.Table, block: RowBlock, source: EdgeSource, known: Catalogue) -> Iterator[tuple[int, Reject]]:
    """The rows with an id or a relation that its list lacks, each with its reject."""
    for name in (source.head.id, source.relation, source.tail.id):
        file = source.listed_only
        if name == source.relation:
            if source.relations is None:
                continue
            listed_texts, file = source.relations
            lacking = pc.invert(pc.is_in(text_of(table, name), pa.array(listed_texts, pa.string())))
        elif file:
            lacking = pa.array(known.find(None, text_of(table, name)) == -1)
        else:
            continue
        for row in np.flatnonzero(np.asarray(lacking)).tolist():
            text = text_of(table, name)[row].as_py()
            yield row, Reject(int(block.lines[row]), name, f"is not in {file}", text[:MAX_SHOWN])


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


def edge_times(table: pa.Table, name: str) -> tuple[np.ndarray, np.ndarray, dict[int, str]]:
    """Seconds of each row (int64; :data:`NO_TIME`: the cell is blank or invalid), units (uint8), and the invalid values."""
    column = category_of(table, name)
    texts = [text.strip() for text in column.dictionary.to_pylist()]
    parsed = [parse_time(text) if text else None for text in texts]
    seconds = np.array([NO_TIME if time is None else time.second for time in parsed], np.int64)
    units = np.array([0 if time is None else time.unit for time in parsed], np.uint8)
    wrong = np.array([bool(text) and time is None for text, time in zip(texts, parsed, strict=True)], bool)
    codes = column.indices.to_numpy()
    return seconds[codes], units[codes], {int(row): texts[codes[row]] for row in np.flatnonzero(wrong[codes])}
