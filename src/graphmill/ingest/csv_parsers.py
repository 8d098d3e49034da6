"""Reads a block of CSV records as texts: with pyarrow where every record is whole, else record by record.

A quote opens a quoted field only at the start of a field. Within it, ``""`` is a quote, and a line break is text. The
closing quote must be followed by the delimiter or the end of the line, and must come within :data:`MAX_FIELD_BYTES`.
Otherwise the record is *broken*: it ends with its first line, and the next line is a new record. So a missing quote
costs one line and never the rest of the file. :func:`records` has these rules byte by byte, and :func:`cut` is a fast cut
that follows them. :mod:`graphmill.ingest.cells` checks the texts.
"""

import csv
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import numpy as np
import pyarrow as pa
import pyarrow.csv

from graphmill.ingest.cells import MAX_FIELD_BYTES, TYPES, Column, printable
from graphmill.ingest.tables import Reject


@dataclass(frozen=True, slots=True)
class Record:
    """Bytes ``start`` to ``end``, including the line break, are one record. ``fault``: its error, or empty."""

    start: int
    end: int
    fault: str = ""


@cache
def _patterns(delimiter: bytes) -> tuple[re.Pattern[bytes], ...]:
    """A field; a whole record; one without a line break at the end of the data; and one with an open field there."""
    mark = re.escape(delimiter)
    field = rb'(?:"(?:[^"]++|"")*+"|(?!")[^%b\n]*+)' % mark
    fields = rb"%b(?:%b%b)*+" % (field, mark, field)
    return (
        re.compile(field),
        re.compile(rb"%b\r?\n" % fields),
        re.compile(rb"%b\r?\Z" % fields),
        re.compile(rb'(?:%b%b)*+"(?P<text>(?:[^"]++|"")*+)\Z' % (field, mark)),
    )


@cache
def _regular(delimiter: bytes, final: bool) -> re.Pattern[bytes]:
    """Whole records in which every quote opens or closes a field, or is doubled within one."""
    mark = re.escape(delimiter)
    field = rb'(?:"(?:[^"]++|"")*+"|[^"%b\n]*+)' % mark
    return re.compile(rb"(?:(?!\Z)%b(?:%b%b)*+\r?%b)*+" % (field, mark, field, rb"(?:\n|\Z)" if final else rb"\n"))


def records(data: bytes, delimiter: bytes, final: bool, quoted: bool = True) -> Iterator[Record]:
    """The records of ``data``, which begins with a record. Blank lines count as records.

    It stops before an incomplete record, unless ``final`` says that no more bytes follow.
    """
    position, size = 0, len(data)
    field, whole, last, open_end = _patterns(delimiter)
    while position < size:
        newline = data.find(b"\n", position)
        if newline < 0 and not final:
            return
        end, fault = newline + 1 if newline >= 0 else size, ""
        if quoted and data.find(b'"', position, end) >= 0:
            match = whole.match(data, position) or last.match(data, position)
            left_open = None if match else open_end.match(data, position)
            if not final and ((match and match.re is last) or (left_open and len(left_open["text"]) < MAX_FIELD_BYTES)):
                return
            late = match and match.end() - position > MAX_FIELD_BYTES and _longest(field, match[0]) > MAX_FIELD_BYTES
            if left_open and final and len(left_open["text"]) <= MAX_FIELD_BYTES:
                fault = "a quote opens a field here and does not close before the end of the file"
            elif left_open or late:
                fault = f"a quote opens a field here and does not close within {MAX_FIELD_BYTES:,} bytes"
            elif match is None:
                fault = "text after the closing quote of a field (or a quote that was never closed)"
            else:
                end = match.end()
        yield Record(position, end, fault)
        position = end


def _longest(field: re.Pattern[bytes], record: bytes) -> int:
    """The bytes from the opening to the closing quote of the longest quoted field."""
    return max((len(each[0]) - 1 for each in field.finditer(record) if each[0].startswith(b'"')), default=0)


def cut(data: bytes, delimiter: bytes, final: bool, quoted: bool = True) -> tuple[int, bool]:
    """The number of bytes of ``data`` that are complete records (0: none), and whether their quotes are
    regular: each opens or closes a field, or is doubled within one."""
    quotes = np.flatnonzero(np.frombuffer(data, dtype=np.uint8) == ord('"')) if quoted else np.zeros(0, np.int64)
    if len(quotes) == 0:
        return (len(data) if final else data.rfind(b"\n") + 1), True
    match = _regular(delimiter, final).match(data)
    end = match.end() if match else 0
    if _longest_quoted(quotes, end) > MAX_FIELD_BYTES:
        end = 0
    others = [record.end for record in records(data[end:], delimiter, final)]
    return end + max(others, default=0), not others


def _longest_quoted(quotes: np.ndarray, end: int) -> int:
    """The length of the longest quoted field up to ``end``, including doubled quotes."""
    inside = quotes[: int(np.searchsorted(quotes, end))]
    opening, closing = inside[0::2], inside[1::2]
    if len(closing) == 0:
        return 0
    first = np.flatnonzero(np.concatenate([[True], opening[1:] != closing[:-1] + 1]))
    last = np.append(first[1:], len(closing)) - 1
    return int((closing[last] - opening[first]).max())


_BLANKS, _EDGE_BLANKS = re.compile(rb"[ \t]+"), re.compile(rb"^ | (?=\r?\n)| \Z", re.MULTILINE)
_LONE_RETURN = re.compile(rb"\r(?!\n)")
_NO_TEXT = "not UTF-8 text; convert the file (for Latin-1: iconv -f latin1 -t utf-8)"
_LONE = "a carriage return within the row"


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

    def records(self, data: bytes, final: bool) -> Iterator[Record]:
        """The records of ``data``; see :func:`graphmill.ingest.csv_parsers.records`."""
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


Texts = tuple[pa.Table, np.ndarray, list[Reject]]
"""Rows as texts, one column for each to read; the line of each row; and the rows that cannot be told apart into texts."""


def read_texts(data: bytes, first_line: int, regular: bool, layout: CsvLayout) -> Texts:
    """The rows of ``data`` as texts.

    ``data`` are complete records from ``first_line`` on. ``regular``: whether their quotes are, as :func:`cut` says.
    """
    if regular and not _LONE_RETURN.search(data) and (table := _arrow_read(data, layout)) is not None:
        view = np.frombuffer(data, dtype=np.uint8)
        newlines = np.flatnonzero(view == ord("\n"))
        if table.num_rows == len(newlines) + (not data.endswith(b"\n")):
            return table, np.arange(first_line, first_line + table.num_rows), []
        starts = _record_starts(view, newlines, layout.quoted)
        if table.num_rows == len(starts):
            return table, first_line + np.searchsorted(newlines, starts), []
    return _read_singly(data, first_line, layout)


def _arrow_read(data: bytes, layout: CsvLayout) -> pa.Table | None:
    """The table of texts; None if pyarrow refuses a row, or a text that is not UTF-8."""
    names = [f"{position}" for position in range(len(layout.header))]
    kinds = {"whole": "text"}
    wanted = {str(layout.header.index(c.name)): TYPES[kinds.get(c.kind, c.kind)] for c in layout.columns}
    # pyarrow drops a byte order mark at the start of its input, but within a file it is text.
    data = b"\n" + data if data.startswith(b"\xef\xbb\xbf") else data
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
        return None
    return table.rename_columns([c.name for c in layout.columns])


def _record_starts(view: np.ndarray, newlines: np.ndarray, quoted: bool) -> np.ndarray:
    """The start of each record that is not a blank line, if quotes are regular."""
    quotes = np.flatnonzero(view == ord('"')) if quoted else np.zeros(0, np.int64)
    ends = newlines[np.searchsorted(quotes, newlines) % 2 == 0]
    if len(ends) == 0 or ends[-1] != len(view) - 1:
        ends = np.append(ends, len(view))
    starts = np.concatenate([[0], ends[:-1] + 1])
    text_ends = np.where(view[np.maximum(ends - 1, 0)] == ord("\r"), ends - 1, ends)
    return starts[text_ends > starts]


def _read_singly(data: bytes, first_line: int, layout: CsvLayout) -> tuple[pa.Table, np.ndarray, list[Reject]]:
    """As :func:`read_texts`: looks at each record alone, and gives those that are whole to pyarrow."""
    kept, lines, rejects, line = list[bytes](), list[int](), list[Reject](), first_line
    for record in layout.records(data, final=True):
        raw = data[record.start : record.end]
        bare = raw.rstrip(b"\r\n")
        plain = bare.isascii() and b"\r" not in bare and b'"' not in bare
        whole = plain and bare.count(layout.delimiter_byte) == len(layout.header) - 1
        if bare or raw not in (b"\n", b"\r\n", b"\r"):
            reject = None if whole else _fault(raw, line, record.fault, layout)
            if reject is None:
                kept.append(bare + b"\n")
                lines.append(line)
            else:
                rejects.append(reject)
        line += raw.count(b"\n")
    table = _arrow_read(b"".join(kept), layout) if kept else None
    if table is None:
        table = pa.table({column.name: pa.array([], pa.string()) for column in layout.columns})
    assert table.num_rows == len(lines), "pyarrow and this module see other records"
    return table, np.array(lines, dtype=np.int64), rejects


def _fault(raw: bytes, line: int, fault: str, layout: CsvLayout) -> Reject | None:
    """The reject of one record, which starts on ``line``; None if it is whole."""
    # Bytes that are not UTF-8 become lone surrogates, which tell later in which field they are.
    text = raw.decode("utf-8", errors="surrogateescape")
    fields: list[str] = []
    try:
        fields = [] if fault else layout.split(text)
    except csv.Error as error:
        fault = _LONE if "new-line" in str(error) else f"longer than {MAX_FIELD_BYTES:,} bytes"
    if not fault and not layout.quoted and "\r" in text.rstrip("\r\n"):
        fault = _LONE
    if not fault and len(fields) != len(layout.header):
        fault = f"expected {len(layout.header)} fields, found {len(fields)}"
        spanned = raw.rstrip(b"\r\n").count(b"\n")
        fault += f" (a quoted field of this row goes on over {spanned + 1} lines)" if spanned else ""
    if fault:
        return Reject(line, "", fault, printable(text.rstrip("\r\n")))
    for column in layout.columns:
        value = fields[layout.header.index(column.name)]
        if not value.isascii() and any("\ud800" <= letter <= "\udfff" for letter in value):
            return Reject(line, column.name, _NO_TEXT, printable(value))
    return None
