"""The two parsers behind :mod:`graphmill.ingest.csv_blocks`: a fast one that can only say "something is wrong", and a
careful one that says what, where and why. A column's rules are stated once, in :class:`CsvLayout`.
"""

import csv
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from graphmill.ingest.records import MAX_FIELD_BYTES, Record, is_regular, records
from graphmill.ingest.rejects import Reject
from graphmill.ingest.tables import CATEGORY, MAX_SHOWN

_GROUP_BYTES = 64 << 10
_LARGEST = 2**63 - 1
_NUMBER = re.compile(r"-?[0-9]+|0[xX][0-9a-fA-F]+", re.ASCII)
_BLANK = " \t\r\n\v\f\u00a0"
_BOM = b"\xef\xbb\xbf"
_TYPES = {"text": pa.string(), "category": CATEGORY, "whole": pa.int64()}


class Doubt(Exception):  # noqa: N818 - a signal between the two parsers, not an error that anyone sees
    """The fast parser met something that the careful one must look at."""


@dataclass(frozen=True)
class Column:
    """A column to read. ``required``: a blank cell is a reject.

    ``kind``: ``text``; ``category`` (text with few distinct values, read as dictionary); ``whole``, a number from 0 to
    2⁶³ - 1, decimal or hexadecimal with ``0x``, read as int64.
    """

    name: str
    kind: Literal["text", "category", "whole"] = "text"
    required: bool = False


@dataclass(frozen=True)
class CsvLayout:
    """Which columns to read and how; ``header`` are all names of the file, in order. Other columns are skipped."""

    columns: tuple[Column, ...]
    delimiter: str = ","
    header: tuple[str, ...] = ()

    @property
    def delimiter_byte(self) -> bytes:
        """The delimiter as a byte: it is ASCII."""
        return self.delimiter.encode()

    @property
    def schema(self) -> pa.Schema:
        """The schema of the blocks."""
        return pa.schema([(c.name, _TYPES[c.kind]) for c in self.columns])

    def records(self, data: bytes, final: bool) -> Iterator[Record]:
        """The records of ``data``; see :func:`graphmill.ingest.records.records`."""
        return records(data, self.delimiter_byte, final)

    def split(self, text: str) -> list[str]:
        """The fields of one record. Raises ``csv.Error`` where it is none."""
        return next(csv.reader([text], delimiter=self.delimiter, strict=True), [])


# ---- the fast parser


def read_fast(data: bytes, first_line: int, layout: CsvLayout) -> tuple[pa.Table, np.ndarray]:
    """All rows of ``data``, whose quotes are regular, and their lines (empty: one line a row, from ``first_line`` on).

    Raises :class:`Doubt` where anything is wrong with any row.
    """
    view = np.frombuffer(data, dtype=np.uint8)
    # pyarrow drops a byte order mark at the start of what it is given; within a file it is text.
    if b"\0" in data or data.startswith(_BOM) or (b"\r" in data and _stray_return(view)):
        raise Doubt
    table = _arrow_read(data, layout)
    newlines = np.flatnonzero(view == ord("\n"))
    lines = np.zeros(0, dtype=np.int64)
    ends = newlines if data.endswith(b"\n") else np.append(newlines, len(data))
    if table.num_rows != len(ends):
        starts, ends = _record_bounds(view, newlines)
        if len(starts) != table.num_rows:  # pyarrow and we should never disagree on where records end; if we do, look
            raise Doubt
        lines = first_line + np.searchsorted(newlines, starts)
    if np.diff(ends, prepend=-1).max(initial=0) > MAX_FIELD_BYTES:
        raise Doubt
    return pa.table([_checked(table[c.name], c) for c in layout.columns], layout.schema), lines


def _stray_return(view: np.ndarray) -> bool:
    """Whether a CR stands anywhere but before an LF."""
    returns = np.flatnonzero(view == ord("\r"))
    return bool(returns[-1] == len(view) - 1 or (view[returns + 1] != ord("\n")).any())


def _arrow_read(data: bytes, layout: CsvLayout) -> pa.Table:
    names = [f"{position}" for position in range(len(layout.header))]
    wanted = {str(layout.header.index(c.name)): _TYPES[c.kind] for c in layout.columns}
    try:
        table = pyarrow.csv.read_csv(
            pa.BufferReader(data),
            # One block and no threads of its own: the blocks are the parallelism, and each column is one chunk.
            read_options=pyarrow.csv.ReadOptions(column_names=names, use_threads=False, block_size=len(data) + 1),
            parse_options=pyarrow.csv.ParseOptions(delimiter=layout.delimiter),
            convert_options=pyarrow.csv.ConvertOptions(
                column_types=wanted, include_columns=list(wanted), strings_can_be_null=False, null_values=[""]
            ),
        )
    except pa.ArrowInvalid:
        raise Doubt from None
    return table.rename_columns([c.name for c in layout.columns])


def _record_bounds(view: np.ndarray, newlines: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Start and end (line break excluded) of each record that is not a blank line, where quotes are regular."""
    quotes = np.flatnonzero(view == ord('"'))
    ends = newlines[np.searchsorted(quotes, newlines) % 2 == 0]
    if len(ends) == 0 or ends[-1] != len(view) - 1:
        ends = np.append(ends, len(view))
    starts = np.concatenate([[0], ends[:-1] + 1])
    text_ends = np.where(view[np.maximum(ends - 1, 0)] == ord("\r"), ends - 1, ends)
    filled = text_ends > starts
    return starts[filled], ends[filled]


def _checked(column: pa.ChunkedArray, rules: Column) -> pa.Array:
    """The column as one array; :class:`Doubt` where a value breaks ``rules``."""
    array = column.chunk(0) if column.num_chunks else pa.array([], _TYPES[rules.kind])
    if rules.kind == "whole":
        if array.null_count or (len(array) and pc.min(array).as_py() < 0):
            raise Doubt
    elif rules.required and has_blank(array.dictionary if rules.kind == "category" else array):
        raise Doubt
    return array


def has_blank(text: pa.StringArray) -> bool:
    """Whether any string is empty or nothing but white space. Looks closer only at those that start with it."""
    if len(text) == 0:
        return False
    bounds = np.frombuffer(text.buffers()[1], dtype=np.int32)[text.offset : text.offset + len(text) + 1]
    if (bounds[1:] == bounds[:-1]).any():
        return True
    first = np.frombuffer(text.buffers()[2], dtype=np.uint8)[bounds[:-1]]
    # 0xC2 begins a no-break space in UTF-8.
    suspects = text.filter(pa.array((first <= ord(" ")) | (first == 0xC2)))
    return bool(pc.any(pc.equal(pc.utf8_trim(suspects, _BLANK), "")).as_py())


# ---- the careful parser


def read_carefully(data: bytes, first_line: int, layout: CsvLayout) -> tuple[pa.Table, np.ndarray, list[Reject]]:
    """The usable rows of ``data``, their lines, and a reject for each other row.

    Small groups of records are tried with the fast parser first, so that one bad row in a large block costs little.
    """
    tables, lines, rejects = [layout.schema.empty_table()], [], list[Reject]()
    for group, line in _groups(data, first_line, layout):
        start, end = group[0].start, group[-1].end
        try:
            if any(r.fault for r in group) or not _regular(data[start:end], layout):
                raise Doubt
            table, where = read_fast(data[start:end], line, layout)
            lines.append(where if len(where) else line + np.arange(table.num_rows))
        except Doubt:
            table, where = _read_records(data, group, line, layout, rejects)
            lines.append(where)
        tables.append(table)
    whole = pa.concat_tables(tables).unify_dictionaries().combine_chunks()
    return whole, np.concatenate([np.zeros(0, dtype=np.int64), *lines]), rejects


def _groups(data: bytes, first_line: int, layout: CsvLayout) -> Iterator[tuple[list[Record], int]]:
    """Neighbouring records, about :data:`_GROUP_BYTES` at a time, with the line on which each group starts."""
    group: list[Record] = []
    line = first_line
    for record in layout.records(data, final=True):
        group.append(record)
        if record.end - group[0].start >= _GROUP_BYTES:
            yield group, line
            line += data.count(b"\n", group[0].start, record.end)
            group = []
    if group:
        yield group, line


def _regular(data: bytes, layout: CsvLayout) -> bool:
    quotes = np.flatnonzero(np.frombuffer(data, dtype=np.uint8) == ord('"'))
    return len(quotes) % 2 == 0 and is_regular(data, quotes, layout.delimiter_byte)


def _read_records(
    data: bytes, group: list[Record], line: int, layout: CsvLayout, rejects: list[Reject]
) -> tuple[pa.Table, np.ndarray]:
    positions = [layout.header.index(c.name) for c in layout.columns]
    kept: list[list[Any]] = [[] for _ in layout.columns]
    lines = []
    for record in group:
        raw = data[record.start : record.end]
        if raw not in (b"\n", b"\r\n", b"\r", b""):
            found = _read_record(raw, record.fault, layout, positions)
            if isinstance(found, _Fault):
                rejects.append(Reject(line, found.column, found.reason, found.value[:MAX_SHOWN]))
            else:
                lines.append(line)
                for values, value in zip(kept, found, strict=True):
                    values.append(value)
        line += raw.count(b"\n")
    arrays = [
        pa.array(values, pa.string()).dictionary_encode() if c.kind == "category" else pa.array(values, _TYPES[c.kind])
        for c, values in zip(layout.columns, kept, strict=True)
    ]
    return pa.table(arrays, layout.schema), np.array(lines, dtype=np.int64)


class _Fault(NamedTuple):
    column: str
    reason: str
    value: str


def _read_record(raw: bytes, fault: str, layout: CsvLayout, positions: list[int]) -> list[Any] | _Fault:
    """The values of one record, or why it cannot be used."""
    # Bytes that are no UTF-8 become lone surrogates, which are found again in the field that they are in.
    text = raw.decode("utf-8", errors="surrogateescape")
    if fault:
        return _Fault("", fault, _printable(text.rstrip("\r\n")))
    try:
        fields = layout.split(text)
    except csv.Error as error:
        reason = "a carriage return within the row" if "new-line" in str(error) else _too_long()
        return _Fault("", reason, _printable(text.rstrip("\r\n")))
    if len(fields) != len(layout.header):
        reason = f"expected {len(layout.header)} fields, found {len(fields)}"
        spanned = raw.rstrip(b"\r\n").count(b"\n")
        reason += f" (a quoted field of this row goes on over {spanned + 1} lines)" if spanned else ""
        return _Fault("", reason, _printable(text.rstrip("\r\n")))
    values = []
    for column, position in zip(layout.columns, positions, strict=True):
        value = _value(fields[position], column)
        if isinstance(value, _Fault):
            return value
        values.append(value)
    return values


def _value(text: str, column: Column) -> str | int | _Fault:
    reason = _why_unusable(text, column)
    if reason:
        return _Fault(column.name, reason, _printable(text))
    return _whole(text) if column.kind == "whole" else text


def _whole(text: str) -> int:
    bare = text.strip(_BLANK)
    return int(bare, 16) if bare[:2] in ("0x", "0X") else int(bare.lstrip("-0") or "0")


def _why_unusable(text: str, column: Column) -> str:
    if "\0" in text:
        return "holds a NUL byte"
    if not text.isascii() and any("\ud800" <= c <= "\udfff" for c in text):
        return "not UTF-8 text; convert the file (for Latin-1: iconv -f latin1 -t utf-8)"
    if len(text.encode()) > MAX_FIELD_BYTES:
        return _too_long()
    bare = text.strip(_BLANK)
    if column.required and not bare:
        return "blank"
    return _why_no_whole(bare) if column.kind == "whole" else ""


def _why_no_whole(bare: str) -> str:
    if not _NUMBER.fullmatch(bare):
        return "not a whole number"
    if bare.startswith("-") and bare.strip("-0"):
        return "negative"
    digits = bare.lstrip("-0")
    # The length first: Python refuses to convert text of thousands of digits.
    large = len(bare) > 18 or int(bare, 16) > _LARGEST if digits[:1] in ("x", "X") else len(digits) > 19
    if large or (digits.isdigit() and int(digits) > _LARGEST):
        return f"larger than {_LARGEST}"
    return ""


def _too_long() -> str:
    return f"longer than {MAX_FIELD_BYTES:,} bytes"


def _printable(text: str) -> str:
    """Text that can be stored as UTF-8: bytes that were none are shown as \\xNN."""
    return (
        text[: 4 * MAX_SHOWN]
        .encode("utf-8", "surrogateescape")
        .decode("utf-8", "backslashreplace")
        .replace("\0", "\\0")
    )
