"""The rules for a CSV file's columns, and the fast parser, which reads a block or reports that it has an error.

:mod:`graphmill.ingest.csv_careful` finds the error and its line. Both follow the rules of :class:`CsvLayout`.
"""

import csv
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from graphmill.ingest.records import MAX_FIELD_BYTES, Record, records
from graphmill.ingest.tables import CATEGORY

BLANK = " \t\r\n\v\f\u00a0"
"""White space; a required cell must contain other characters."""

_BOM = b"\xef\xbb\xbf"
_BLANKS, _EDGE_BLANKS = re.compile(rb"[ \t]+"), re.compile(rb"^ | (?=\r?\n)| \Z", re.MULTILINE)
_TYPES = {"text": pa.string(), "category": CATEGORY, "whole": pa.int64()}


class Doubt(Exception):  # noqa: N818 - a signal between the two parsers, not an error that anyone sees
    """The fast parser found something that the careful one must check."""


@dataclass(frozen=True)
class Column:
    """A column to read. ``required``: a blank cell is a reject. ``names``: its cells are ids or names, never quantities.

    ``kind``: ``text``; ``category`` (text with few distinct values, read as dictionary); ``whole``, a number from 0 to
    2⁶³ - 1, decimal or hexadecimal with ``0x``, read as int64.
    """

    name: str
    kind: Literal["text", "category", "whole"] = "text"
    required: bool = False
    names: bool = False


@dataclass(frozen=True)
class CsvLayout:
    """Which columns to read and how. ``header``: all names in the file, in order. Other columns are skipped.

    ``quoted`` False: a quote is a letter as any other, and a blank as ``delimiter`` stands for any white space.
    ``delimiter``: one ASCII character, or ``::``.
    """

    columns: tuple[Column, ...]
    delimiter: str = ","
    header: tuple[str, ...] = ()
    quoted: bool = True

    @property
    def mark(self) -> str:
        """The one ASCII character between the fields of :meth:`plain` text."""
        return "\x1f" if self.delimiter == "::" else self.delimiter

    @property
    def delimiter_byte(self) -> bytes:
        """:attr:`mark` as a byte."""
        return self.mark.encode()

    def plain(self, data: bytes) -> bytes:
        """``data`` with one character between fields."""
        if self.delimiter == "::":
            return data.replace(b"::", self.delimiter_byte)
        return data if self.quoted or self.delimiter != " " else _EDGE_BLANKS.sub(b"", _BLANKS.sub(b" ", data))

    @property
    def schema(self) -> pa.Schema:
        """The schema of the blocks."""
        return pa.schema([(c.name, _TYPES[c.kind]) for c in self.columns])

    def records(self, data: bytes, final: bool) -> Iterator[Record]:
        """The records of ``data``; see :func:`graphmill.ingest.records.records`."""
        return records(data, self.delimiter_byte, final, self.quoted)

    def split(self, text: str) -> list[str]:
        """The fields of one record. Raises ``csv.Error`` if it is not valid."""
        if not self.quoted:
            return text.rstrip("\r\n").split(self.mark)
        return next(csv.reader([text], delimiter=self.mark, strict=True), [])

    def split_loosely(self, text: str) -> list[str]:
        """The fields of an unchecked line."""
        try:
            return self.split(text)
        except csv.Error:
            return text.split(self.mark)


def read_fast(data: bytes, first_line: int, layout: CsvLayout) -> tuple[pa.Table, np.ndarray]:
    """All rows of ``data``, whose quotes must be regular, and their lines (empty: one line per row, from ``first_line`` on).

    Raises :class:`Doubt` if any row has an error.
    """
    view = np.frombuffer(data, dtype=np.uint8)
    # pyarrow drops a byte order mark at the start of its input, but within a file it is text.
    if b"\0" in data or data.startswith(_BOM) or (b"\r" in data and len(lone_returns(view))):
        raise Doubt
    table = _arrow_read(data, layout)
    newlines = np.flatnonzero(view == ord("\n"))
    lines = np.zeros(0, dtype=np.int64)
    ends = newlines if data.endswith(b"\n") else np.append(newlines, len(data))
    if table.num_rows != len(ends):
        starts, ends = record_bounds(view, newlines, layout.quoted)
        if len(starts) != table.num_rows:  # pyarrow and this module see other records: check
            raise Doubt
        lines = first_line + np.searchsorted(newlines, starts)
    if np.diff(ends, prepend=-1).max(initial=0) > MAX_FIELD_BYTES:
        raise Doubt
    return pa.table([_checked(table[c.name], c) for c in layout.columns], layout.schema), lines


def lone_returns(view: np.ndarray) -> np.ndarray:
    """The places of CRs that are not followed by an LF."""
    returns = np.flatnonzero(view == ord("\r"))
    return returns[view[np.minimum(returns + 1, len(view) - 1)] != ord("\n")]


def _arrow_read(data: bytes, layout: CsvLayout) -> pa.Table:
    names = [f"{position}" for position in range(len(layout.header))]
    wanted = {str(layout.header.index(c.name)): _TYPES[c.kind] for c in layout.columns}
    try:
        table = pyarrow.csv.read_csv(
            pa.BufferReader(data),
            # One block without own threads: blocks are parsed in parallel, and each column is one chunk.
            read_options=pyarrow.csv.ReadOptions(column_names=names, use_threads=False, block_size=len(data) + 1),
            parse_options=pyarrow.csv.ParseOptions(delimiter=layout.mark, quote_char=layout.quoted and '"'),
            convert_options=pyarrow.csv.ConvertOptions(
                column_types=wanted, include_columns=list(wanted), strings_can_be_null=False, null_values=[""]
            ),
        )
    except pa.ArrowInvalid:
        raise Doubt from None
    return table.rename_columns([c.name for c in layout.columns])


def record_bounds(view: np.ndarray, newlines: np.ndarray, quoted: bool) -> tuple[np.ndarray, np.ndarray]:
    """Start and end (without the line break) of each record that is not a blank line, if quotes are regular."""
    quotes = np.flatnonzero(view == ord('"')) if quoted else np.zeros(0, np.int64)
    ends = newlines[np.searchsorted(quotes, newlines) % 2 == 0]
    if len(ends) == 0 or ends[-1] != len(view) - 1:
        ends = np.append(ends, len(view))
    starts = np.concatenate([[0], ends[:-1] + 1])
    text_ends = np.where(view[np.maximum(ends - 1, 0)] == ord("\r"), ends - 1, ends)
    filled = text_ends > starts
    return starts[filled], ends[filled]


def _checked(column: pa.ChunkedArray, rules: Column) -> pa.Array:
    """The column as one array. Raises :class:`Doubt` if a value breaks ``rules``."""
    array = column.chunk(0) if column.num_chunks else pa.array([], _TYPES[rules.kind])
    if rules.kind == "whole":
        if array.null_count or (len(array) and pc.min(array).as_py() < 0):
            raise Doubt
    elif rules.required and has_blank(array.dictionary if rules.kind == "category" else array):
        raise Doubt
    return array


def has_blank(text: pa.StringArray) -> bool:
    """Whether any string is empty or only white space. Only strings that start with white space are checked in full."""
    if len(text) == 0:
        return False
    bounds = np.frombuffer(text.buffers()[1], dtype=np.int32)[text.offset : text.offset + len(text) + 1]
    if (bounds[1:] == bounds[:-1]).any():
        return True
    first = np.frombuffer(text.buffers()[2], dtype=np.uint8)[bounds[:-1]]
    # 0xC2 begins a no-break space in UTF-8.
    suspects = text.filter(pa.array((first <= ord(" ")) | (first == 0xC2)))
    return bool(pc.any(pc.equal(pc.utf8_trim(suspects, BLANK), "")).as_py())
