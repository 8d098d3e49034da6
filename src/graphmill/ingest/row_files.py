"""Reads any table file as a stream of checked blocks: CSV, Parquet, or JSON with one object per line, found from its
content.

All give the same blocks (:class:`graphmill.ingest.csv_blocks.CsvBlock`): text columns, blank for missing values, with a
reject for each row that breaks the rules of its columns. Line numbers of Parquet are row numbers from 1.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from graphmill.errors import InputError, listed, one_line
from graphmill.ingest.csv_blocks import (
    CsvBlock,
    Header,
    Lines,
    read_blocks,
    read_header,
    read_pieces,
    split_directive,
    without_comments,
)
from graphmill.ingest.csv_careful import checked_value
from graphmill.ingest.csv_parsers import BLANK, Column, CsvLayout
from graphmill.ingest.files import PARQUET, Source, first_lines, is_plain, lines_of, shown
from graphmill.ingest.records import MAX_FIELD_BYTES
from graphmill.ingest.rejects import Reject
from graphmill.ingest.tables import MAX_SHOWN
from graphmill.parquet import ParquetTable
from graphmill.settings import LONGEST_TEXT

T = TypeVar("T")
Digest = Callable[[CsvBlock], T]

DELIMITERS = (",", "\t", ";", "|")
_WORDS = {"\t": "tab"}
LIST_MARK = "|"
"""Separator of the values of a list that is read as text."""
_BLOCK_ROWS = 1 << 17
_KEYS_FROM = 1000
"""Number of objects whose keys become the columns of a JSON-lines file. A key that first occurs later is not read."""
_PREVIEW_BYTES = 1 << 16


class RowFile:
    """An open table file; a context manager. ``header`` has the names of its columns.

    ``delimiter``: one character, ``::``, or ``auto``: the one in the ``sep=`` line, else the one with which the header
    has most of ``wanted``, else most columns. ``header_line`` False: the columns are named "0", "1", ... ``names``: what
    the columns are called instead of that or of the names in the file. ``quoted`` False: quotes are letters, and a blank
    as ``delimiter`` stands for any white space. Raises :class:`InputError` for a file of another kind, or without a
    header.
    """

    def __init__(
        self,
        path: str | Path,
        delimiter: str = "auto",
        *,
        header_line: bool = True,
        wanted: Sequence[str] = (),
        names: Sequence[str] = (),
        quoted: bool = True,
    ) -> None:
        self.name, self._path = shown(path), path
        self.kind = kind_of(path)
        self.delimiter = "," if delimiter == "auto" else delimiter
        self.comments = 0
        self._quoted = quoted
        self._source: Source | None = None
        if self.kind == "csv":
            if delimiter == "auto":
                self.delimiter = _guess_delimiter(self._path, wanted)
            self._source = Source(self._path)
            try:
                self.header, self._rest = read_header(
                    self._source, self._layout(), header_line=header_line, wanted=wanted
                )
            except BaseException:
                self._source.close()
                raise
            self.comments = self.header.comments
        else:
            read = _parquet_names if self.kind == "parquet" else _json_names
            self.header = Header(tuple(read(path, self.name)), 1, bom=False, crlf=False)
        if names and (not header_line or len(names) == len(self.names)):
            self.header = replace(self.header, names=tuple(names))
        longest = max(map(len, self.names), default=0)
        if longest > LONGEST_TEXT or any("\0" in name for name in self.names):
            self.close()
            what = f"a name of {longest:,} characters" if longest > LONGEST_TEXT else "a NUL byte"
            raise InputError(f"{self.name}: the header has {what}; is this a table, and whole?")

    def __enter__(self) -> RowFile:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        if self._source:
            self._source.close()

    def require(self, names: Sequence[str]) -> None:
        """Raise :class:`InputError` if one of the columns ``names`` is missing, or is there more than once."""
        if missing := [name for name in names if name not in self.names]:
            hint = ""
            if len(self.names) == 1:
                fits = (mark for mark in DELIMITERS if set(names) <= set(self.names[0].split(mark)))
                hint = next(
                    (f" The fields are separated by '{_WORDS.get(mark, mark)}': set delimiter." for mark in fits), ""
                )
            raise InputError(
                f"{self.name}: column {', '.join(missing)} is missing; the header has {listed(self.names)}.{hint} "
                "Name your columns in the source's column map (`graphmill ingest-report` suggests one)"
            )
        if twice := [name for name in names if self.names.count(name) > 1]:
            raise InputError(
                f"{self.name}: the header names column {listed(dict.fromkeys(twice))} more than once; rename one"
            )

    @property
    def notes(self) -> list[str]:
        """Sentences on what was skipped or converted at the start of the file."""
        words = {"bom": "a byte order mark at the start was skipped", "crlf": "lines end in CR LF; read as LF"}
        comments = [f"{self.comments:,} comment lines (# or !) were skipped"] if self.comments else []
        return [text for name, text in words.items() if getattr(self.header, name)] + comments

    def _layout(self, columns: Sequence[Column] = (), names: tuple[str, ...] = ()) -> CsvLayout:
        return CsvLayout(tuple(columns), self.delimiter, names, self._quoted)

    def _pieces(self, source: Source, layout: CsvLayout) -> Iterator[tuple[bytes, int, bool]]:
        """The bytes of blocks of rows, without comments, and with single characters between fields."""
        for data, line, regular in read_pieces(source, self.header, self._rest, layout):
            data, comments = without_comments(layout.plain(data), layout, everywhere=self.header.comments > 0)
            self.comments += comments
            yield data, line, regular

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all columns."""
        return self.header.names

    def blocks(self, columns: Sequence[Column], digest: Digest[T]) -> Iterator[tuple[T, list[Reject]]]:
        """Yield the result of ``digest`` for each block of ``columns``, in order, and the rejects of the block."""
        self.require([column.name for column in columns])
        layout = self._layout(columns, self.names)
        if self._source:
            yield from read_blocks(self._pieces(self._source, layout), layout, digest)
            return
        read = _parquet_blocks if self.kind == "parquet" else _json_blocks
        for block in read(self._path, self.name, layout):
            yield digest(block), block.rejects

    def first(self, count: int) -> list[dict[str, str]]:
        """The first rows as text, unchecked."""
        if self.kind == "csv":
            layout = self._layout(names=self.names)
            start, _ = without_comments(
                layout.plain(self._rest[:_PREVIEW_BYTES]), layout, everywhere=self.header.comments > 0
            )
            rows = (layout.split_loosely(line) for line in first_lines(start))
            return [dict(zip(self.names, row, strict=False)) for row in islice(rows, count)]
        once = [name for name in self.names if self.names.count(name) == 1]
        layout = self._layout([Column(name) for name in once], self.names)
        read = _parquet_blocks if self.kind == "parquet" else _json_blocks
        for block in read(self._path, self.name, layout, count):
            return [dict(row) for row in block.table.slice(0, count).to_pylist()]
        return []


def kind_of(path: str | Path) -> str:
    """csv, parquet or jsonl, from the first bytes. Raises :class:`InputError` if the file cannot be opened, or is plain
    JSON."""
    with Source(path, text=False) as source:
        start = source.read(4)
    if start == PARQUET:
        return "parquet"
    with Source(path) as source:
        start = source.read(_PREVIEW_BYTES).lstrip()
        if start[:1] == b"[" and start[1:].lstrip()[:1] in (b"{", b"["):
            raise InputError(
                f"{source.name} is one JSON array; write one object a line (jq -c '.[]' FILE > FILE.jsonl, or pandas: "
                "to_json(orient='records', lines=True))"
            )
        if start[:1] != b"{":
            return "csv"
        first, whole, _ = start.partition(b"\n")
        try:
            if whole:  # otherwise the first object is longer than the bytes read
                json.loads(first)
        except (ValueError, RecursionError):
            raise InputError(
                f"{source.name} seems to be JSON, but its first line is not an object; write one object per line "
                "(jq -c '.[]' FILE > FILE.jsonl)"
            ) from None
        return "jsonl"


def _guess_delimiter(path: str | Path, wanted: Sequence[str]) -> str:
    best, most = ",", (-1, False, 0)
    for delimiter in DELIMITERS:
        with Source(path) as source:
            if directed := split_directive(source.read(_PREVIEW_BYTES))[0]:
                return directed
        layout = CsvLayout((), delimiter)
        with Source(path) as source:
            try:
                header, rest = read_header(source, layout, wanted=wanted)
            except InputError:
                if delimiter == DELIMITERS[-1] and most[0] < 0:
                    raise
                continue
        names, row = header.names, next(iter(first_lines(rest[:_PREVIEW_BYTES])), "")
        fits = len(names) > 1 and (not row or len(layout.split_loosely(row)) == len(names))
        score = sum(name in wanted for name in names), fits, len(names)
        if score > most:
            best, most = delimiter, score
    return best


# ---------------------------------------------------------------------- Parquet


def parquet_file(path: str | Path, name: str) -> ParquetTable:
    """The Parquet file, mapped if it is local and not compressed. Raises :class:`InputError` if it is damaged, or too large
    for the memory."""
    if is_plain(path, PARQUET):
        return ParquetTable(path, name, mapped=True)
    with Source(path, text=False) as source:
        return ParquetTable(pa.BufferReader(source.read_whole()), name)


def _parquet_names(path: str | Path, name: str) -> list[str]:
    return list(parquet_file(path, name).names)


def _parquet_blocks(path: str | Path, name: str, layout: CsvLayout, rows: int = _BLOCK_ROWS) -> Iterator[CsvBlock]:
    line = 1
    for batch in parquet_file(path, name).batches(rows, [c.name for c in layout.columns]):
        try:
            columns = {c.name: _as_text(batch.column(c.name), c.name, name) for c in layout.columns}
        except pa.ArrowException as error:
            raise InputError(f"{name} cannot be read ({one_line(error)}); write it again") from None
        lines = np.arange(line, line + batch.num_rows)
        line += batch.num_rows
        yield checked_block(columns, lines, layout)


def _as_text(column: pa.Array, label: str, name: str) -> pa.StringArray:
    kind = column.type
    if pa.types.is_dictionary(kind):
        column, kind = column.dictionary_decode(), kind.value_type
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        values = column.flatten().cast(pa.string())
        column = pc.binary_join(pa.ListArray.from_arrays(_offsets(column), values), LIST_MARK)
    elif pa.types.is_nested(kind):
        raise InputError(f"{name}: column {label!r} holds {kind}; text or numbers are expected, or lists of them")
    return pc.fill_null(column.cast(pa.string()), "")


def _offsets(column: pa.Array) -> pa.Array:
    return pa.array(
        np.concatenate(([0], np.cumsum(pc.fill_null(pc.list_value_length(column), 0).to_numpy()))), pa.int32()
    )


# ---------------------------------------------------------------------- JSON lines


def _json_records(path: str | Path) -> Iterator[tuple[int, Any, str]]:
    """Yield line number, object (None if the line is not an object) and text of every line that is not blank."""
    for number, raw in lines_of(path):
        if not raw.strip():
            continue
        try:
            found = json.loads(raw, parse_int=str, parse_float=str, parse_constant=str)
        except (ValueError, RecursionError):
            found = None
        yield number, found if isinstance(found, dict) else None, raw.decode("utf-8", errors="replace")


def _json_names(path: str | Path, name: str) -> list[str]:
    names: dict[str, None] = {}
    for _, record, _ in islice(_json_records(path), _KEYS_FROM):
        names |= dict.fromkeys(filter(_is_unicode, record or ()))
    return list(names)


def _json_blocks(path: str | Path, name: str, layout: CsvLayout, rows: int = _BLOCK_ROWS) -> Iterator[CsvBlock]:
    records = _json_records(path)
    while part := list(islice(records, rows)):
        rejects = [
            Reject(line, "", "no JSON object", text[:MAX_SHOWN].replace("\0", "\\0"))
            for line, r, text in part
            if r is None
        ]
        found = [(line, record) for line, record, _ in part if record is not None]
        columns: dict[str, pa.StringArray] = {}
        odd: dict[int, Reject] = {}
        for column in layout.columns:
            values = []
            for line, record in found:
                value = _json_text(record.get(column.name))
                fault = (
                    "neither text nor a number" if value is None else "" if _is_unicode(value) else "half a character"
                )
                if fault:
                    shown_value = json.dumps(record[column.name])[:MAX_SHOWN]
                    odd.setdefault(line, Reject(line, column.name, fault, shown_value))
                values.append("" if fault else value)
            columns[column.name] = pa.array(values, pa.string())
        kept = np.array([line not in odd for line, _ in found], bool)
        lines = np.array([line for line, _ in found], np.int64)[kept]
        block = checked_block({n: c.filter(pa.array(kept)) for n, c in columns.items()}, lines, layout)
        yield replace(block, rejects=[*rejects, *odd.values(), *block.rejects])


def _json_text(value: Any) -> str | None:
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return value
    if isinstance(value, list) and all(isinstance(part, str) for part in value):
        return LIST_MARK.join(value)
    return None


def _is_unicode(text: str) -> bool:
    """Whether the text is valid Unicode: JSON may have one half of a surrogate pair, such as ``"\\ud800"``."""
    try:
        return text.isascii() or bool(text.encode())
    except UnicodeEncodeError:
        return False


# ---------------------------------------------------------------------- both


def checked_block(columns: dict[str, pa.StringArray], lines: np.ndarray, layout: CsvLayout) -> CsvBlock:
    """Text columns as a block. Rows that break the rules of ``layout.columns`` become rejects."""
    bad = np.zeros(len(lines), bool)
    suspects = np.zeros(len(lines), bool)
    for column in layout.columns:
        suspects |= _suspect(columns[column.name], column)
    rejects, values = list[Reject](), dict[tuple[str, int], Any]()
    for row in np.flatnonzero(suspects).tolist():
        for column in layout.columns:
            text = columns[column.name][row].as_py()
            found = checked_value(text, column, int(lines[row]))
            if isinstance(found, Reject):
                rejects.append(found)
                bad[row] = True
                break
            values[column.name, row] = found
    keep = pa.array(~bad)
    arrays = []
    for column in layout.columns:
        array = columns[column.name]
        if column.kind == "whole":
            texts = array.to_pylist()
            whole = [values.get((column.name, row), text) for row, text in enumerate(texts)]
            array = pa.array([0 if bad[row] else int(value) for row, value in enumerate(whole)], pa.int64())
        array = array.filter(keep)
        arrays.append(array.dictionary_encode() if column.kind == "category" else array)
    table = pa.table(arrays, layout.schema)
    return CsvBlock(table, Lines(1, lines[~bad]), rejects)


def _suspect(text: pa.StringArray, column: Column) -> np.ndarray:
    """Rows whose value may break the column's rules."""
    odd = pc.or_(pc.greater(pc.binary_length(text), MAX_FIELD_BYTES // 4), pc.match_substring(text, "\0"))
    if column.required:
        odd = pc.or_(odd, pc.equal(pc.utf8_trim(text, BLANK), ""))
    if column.kind == "whole":
        odd = pc.or_(odd, pc.invert(pc.match_substring_regex(text, r"^[0-9]{1,18}$")))
    return np.asarray(odd.to_numpy(zero_copy_only=False), bool)
