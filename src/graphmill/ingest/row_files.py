"""Reads any table file as a stream of checked blocks: CSV, Parquet, or JSON with one object per line, found from its
content.

All give the same blocks (:class:`graphmill.ingest.cells.RowBlock`): text columns, blank for missing values, with a
reject for each row that breaks the rules of its columns. Line numbers of Parquet are row numbers from 1.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from graphmill.errors import InputError, listed, one_line
from graphmill.ingest.cells import (
    PREVIEW_ROWS,
    SAMPLE_ROWS,
    Column,
    RowBlock,
    are_dates,
    are_decimals,
    checked_block,
    whole_number,
    with_whole_ids,
)
from graphmill.ingest.csv_blocks import (
    DELIMITERS,
    LAST_RESORTS,
    Header,
    guess_delimiter,
    in_threads,
    read_header,
    read_pieces,
    start_of,
    without_comments,
)
from graphmill.ingest.csv_parsers import CsvLayout, Texts, read_texts
from graphmill.ingest.files import LONGEST_LINE, PARQUET, Source, first_lines, is_plain, lines_of, path_text
from graphmill.ingest.names import is_time_name
from graphmill.ingest.tables import MAX_SHOWN, Reject
from graphmill.parquet import ParquetTable
from graphmill.settings import LONGEST_TEXT

LIST_MARK = "|"
"""Separator of the values of a list that is read as text."""
_KEYS_FROM = 1000
"""Number of objects whose keys become the columns of a JSON-lines file. A key that first occurs later is not read."""


class _Decimal(str):
    """The text of a decimal number in JSON."""


def _json_records(path: str | Path) -> Iterator[tuple[int, Any, str]]:
    """Yield line number, object (None if the line is not an object) and text of every line that is not blank."""
    for number, raw in lines_of(path):
        if not raw.strip():
            continue
        try:
            value_of_line = json.loads(raw, parse_int=str, parse_float=_Decimal, parse_constant=str)
        except (ValueError, RecursionError):
            value_of_line = None
        yield number, value_of_line if isinstance(value_of_line, dict) else None, raw.decode("utf-8", errors="replace")


def json_names(path: str | Path) -> list[str]:
    """The keys of the first objects, as names of columns."""
    names: dict[str, None] = {}
    for _, record, _ in islice(_json_records(path), _KEYS_FROM):
        names |= dict.fromkeys(filter(_is_unicode, record or ()))
    return list(names)


def json_texts(
    path: str | Path, columns: tuple[Column, ...], decimals: list[tuple[str, int]], rows: int
) -> Iterator[Texts]:
    """The texts of at most ``rows`` lines at a time. ``decimals``: gets the column of each whole number that is written
    as decimal."""
    records = _json_records(path)
    while part := list(islice(records, rows)):
        rejects, lines = list[Reject](), list[int]()
        texts: dict[str, list[str]] = {column.name: [] for column in columns}
        for line, record, source in part:
            if record is None:
                rejects.append(Reject(line, "", "no JSON object", source[:MAX_SHOWN].replace("\0", "\\0")))
                continue
            values = [_cell(record.get(column.name), column) for column in columns]
            wrong = next((place for place, (_, fault) in enumerate(values) if fault), None)
            if wrong is not None:
                name = columns[wrong].name
                rejects.append(Reject(line, name, values[wrong][1], json.dumps(record[name])[:MAX_SHOWN]))
                continue
            lines.append(line)
            for column, (text, _) in zip(columns, values, strict=True):
                texts[column.name].append(text)
                if column.names and isinstance(record.get(column.name), _Decimal):
                    decimals.append((column.name, 1))
        table = pa.table({name: pa.array(values, pa.string()) for name, values in texts.items()})
        yield table, np.array(lines, np.int64), rejects


def _cell(value: Any, column: Column) -> tuple[str, str]:
    """The text of a value, and why it cannot be used, empty if it can."""
    text = "" if value is None else value
    if isinstance(value, bool):
        text = str(value).lower()
    elif isinstance(value, list) and all(part is None or isinstance(part, str) for part in value):
        text = LIST_MARK.join(part or "" for part in value)
    if not isinstance(text, str):
        return "", "neither text nor a number"
    if not _is_unicode(text):
        return "", "half a character"
    return whole_number(text) if column.names and isinstance(value, _Decimal) else (text, "")


def _is_unicode(text: str) -> bool:
    r"""Whether the text is valid Unicode: JSON may have one half of a surrogate pair, such as ``"\ud800"``."""
    try:
        return text.isascii() or bool(text.encode())
    except UnicodeEncodeError:
        return False


T = TypeVar("T")
Digest = Callable[[RowBlock], T]

_BLOCK_ROWS = 1 << 17
_BLOCK_BYTES = 1 << 27
_PREVIEW_BYTES = 1 << 16


class RowFile(AbstractContextManager["RowFile"]):
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
        self.name, self._path = path_text(path), path
        self.kind = kind_of(path)
        self.delimiter = "," if delimiter == "auto" else delimiter
        self.comments, self._quoted = 0, quoted
        self._source: Source | None = None
        self._decimals: list[tuple[str, int]] = []
        self._dated: dict[str, str] = {}
        if self.kind == "csv":
            self._source = Source(self._path)
            try:
                start = start_of(self._source)
                self.delimiter = guess_delimiter(self._source, start, wanted) if delimiter == "auto" else delimiter
                self._quoted = quoted and self.delimiter not in LAST_RESORTS
                self.header, self._rest = read_header(
                    self._source, start, self._layout(), header_line=header_line, wanted=wanted
                )
            except BaseException:
                self._source.close()
                raise
            self.comments = self.header.comments
        else:
            names_of = parquet_file(path, self.name).names if self.kind == "parquet" else json_names(path)
            self.header = Header(tuple(names_of), 1, bom=False, crlf=False)
        if names and (not header_line or len(names) == len(self.names)):
            self.header = replace(self.header, names=tuple(names))
        longest = max(map(len, self.names), default=0)
        if longest > LONGEST_TEXT or any("\0" in name for name in self.names):
            self.close()
            what = f"a name of {longest:,} characters" if longest > LONGEST_TEXT else "a NUL byte"
            raise InputError(f"{self.name}: the header has {what}; is this a table, and whole?")

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        if self._source:
            self._source.close()

    def require(self, names: Sequence[str]) -> None:
        """Raise :class:`InputError` if one of the columns ``names`` is missing, or is there more than once."""
        if missing := [name for name in names if name not in self.names]:
            remedy = "Name your columns in the source's column map (`graphmill ingest-report` suggests one)"
            if len(self.names) == 1 and any(set(names) <= set(self.names[0].split(mark)) for mark in DELIMITERS):
                remedy = "Its fields have another separator: leave delimiter out, which finds it"
            raise InputError(
                f"{self.name}: column {', '.join(missing)} is missing; the header has {listed(self.names)}. {remedy}"
            )
        if twice := [name for name in names if self.names.count(name) > 1]:
            raise InputError(
                f"{self.name}: the header names column {listed(dict.fromkeys(twice))} more than once; rename one"
            )

    @property
    def notes(self) -> list[str]:
        """Sentences on what was skipped or converted at the start of the file."""
        words = {"bom": "a byte order mark at the start was skipped", "crlf": "lines end in CR LF; read as LF"}
        sentences = [text for name, text in words.items() if getattr(self.header, name)]
        sentences += [f"{self.comments:,} comment lines were skipped"] if self.comments else []
        for name in dict.fromkeys(name for name, _ in self._decimals):
            number = sum(count for each, count in self._decimals if each == name)
            sentences.append(
                f"column {name}: {number:,} whole numbers were written as decimals (7.0); they were read as 7"
            )
        for name, date in self._dated.items():
            sentences.append(f"column {name} holds dates or times ({date[:40]}), and they are read as ids or names")
        return sentences

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
        decimal = self._typed_names([column.name for column in columns if column.names])

        def read(part: Any) -> tuple[T, list[Reject]]:
            if self._source:
                data, line, regular = part
                part = read_texts(data, line, regular, layout)
            texts, lines, broken = part
            block = checked_block(texts, lines, layout.columns)
            block.rejects.extend(broken)
            if decimal:
                block = with_whole_ids(block, decimal, self._decimals, self.kind == "parquet")
            return digest(block), block.rejects

        parts = self._pieces(self._source, layout) if self._source else self._typed_texts(layout.columns)
        return in_threads(parts, read)

    def _typed_texts(self, columns: tuple[Column, ...], rows: int = _BLOCK_ROWS) -> Iterator[Texts]:
        if self.kind == "parquet":
            return _parquet_texts(self._path, self.name, columns, rows)
        return json_texts(self._path, columns, self._decimals, rows)

    def _typed_names(self, names: Sequence[str]) -> dict[str, int]:
        """The columns of ids that hold whole numbers as decimals (7.0), by the types of Parquet or by the first rows of a
        text file, with the bits of their mantissa; keeps those that hold dates."""
        rows = self.cells(SAMPLE_ROWS if self.kind == "csv" else PREVIEW_ROWS)
        columns = {name: [row[at].strip() for row in rows if len(row) > at] for at, name in enumerate(self.names)}
        self._dated = {
            name: cells[0] for name in names
            if (cells := list(filter(None, columns[name]))) and (are_dates(cells) or is_time_name(name))
        }  # fmt: skip
        if self.kind == "parquet":
            schema = parquet_file(self._path, self.name).schema
            kinds = {name: schema.field(name).type for name in names}
            kinds = {name: kind.value_type if pa.types.is_dictionary(kind) else kind for name, kind in kinds.items()}
            mantissa = {16: 11, 32: 24, 64: 53}
            return {name: mantissa[kind.bit_width] for name, kind in kinds.items() if pa.types.is_floating(kind)}
        if self.kind == "jsonl":
            return {}  # each value has its type
        return {name: 53 for name in names if are_decimals(columns[name])}

    def cells(self, count: int) -> list[list[str]]:
        """The cells of the first rows as text, unchecked."""
        if self.kind == "csv":
            layout = self._layout(names=self.names)
            start, _ = without_comments(
                layout.plain(self._rest[:_PREVIEW_BYTES]), layout, everywhere=self.header.comments > 0
            )
            return [layout.split_loosely(line) for line in first_lines(start)[:count]]
        once = [name for name in self.names if self.names.count(name) == 1]
        for texts, _, _ in self._typed_texts(tuple(map(Column, once)), count):
            rows = texts.to_pylist()
            return [[str(row.get(name, "")) for name in self.names] for row in rows]
        return []

    def first(self, count: int) -> list[dict[str, str]]:
        """The first rows as text, unchecked."""
        return [dict(zip(self.names, row, strict=False)) for row in self.cells(count)]


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


# ---------------------------------------------------------------------- Parquet


def parquet_file(path: str | Path, name: str) -> ParquetTable:
    """The Parquet file, mapped if it is local and not compressed. Raises :class:`InputError` if it is damaged, or too large
    for the memory."""
    if is_plain(path, PARQUET):
        return ParquetTable(path, name, mapped=True)
    with Source(path, text=False) as source:
        return ParquetTable(pa.BufferReader(source.read_whole()), name)


def _parquet_texts(path: str | Path, name: str, columns: tuple[Column, ...], rows: int) -> Iterator[Texts]:
    line, table, names = 1, parquet_file(path, name), [column.name for column in columns]
    longest = table.longest_text(names)
    if longest > LONGEST_LINE:
        raise InputError(f"{name}: a text is longer than {LONGEST_LINE >> 20} MiB; is this a table of ids and names?")
    for batch in table.batches(min(rows, max(_BLOCK_BYTES // max(longest, 1), 1)), names):
        try:
            texts = {column.name: _as_text(batch.column(column.name), column.name, name) for column in columns}
        except pa.ArrowException as error:
            raise InputError(f"{name} cannot be read ({one_line(error)}); write it again") from None
        yield pa.table(texts), np.arange(line, line + batch.num_rows), []
        line += batch.num_rows


def _as_text(column: pa.Array, label: str, name: str) -> pa.StringArray:
    kind = column.type
    if pa.types.is_dictionary(kind):
        column, kind = column.dictionary_decode(), kind.value_type
    if pa.types.is_floating(kind):
        column = pc.if_else(pc.is_nan(column), pa.scalar(None, kind), column)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        values = pc.fill_null(column.flatten().cast(pa.string()), "")
        lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy()
        offsets = pa.array(np.concatenate(([0], np.cumsum(lengths))), pa.int32())
        column = pc.binary_join(pa.ListArray.from_arrays(offsets, values), LIST_MARK)
    elif pa.types.is_nested(kind):
        raise InputError(f"{name}: column {label!r} holds {kind}; text or numbers are expected, or lists of them")
    return pc.fill_null(column.cast(pa.string()), "")
