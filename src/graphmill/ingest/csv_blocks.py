"""The header of a CSV file, its delimiter and comments; and the blocks into which the file is cut, for threads.

pyarrow's parser does not name lines when it uses threads. So the file is cut at record boundaries, and threads parse the
blocks (:mod:`graphmill.ingest.csv_parsers`).
"""

import csv
import os
import re
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from graphmill.errors import InputError
from graphmill.ingest.csv_parsers import CsvLayout, cut
from graphmill.ingest.files import COMMENTS, LONGEST_LINE, Source, first_lines, too_long
from graphmill.ingest.names import END_WORDS, RELATION_NAMES, has_header, plain_name, role_of

DELIMITERS = (",", "\t", ";", "|")
LAST_RESORTS = ("::", " ")
"""Separators that are tried where none of the others fits: a blank stands for any white space."""
BLOCK_BYTES = 16 << 20
_HEADER_BYTES = 1 << 20
_SAMPLE_BYTES, _SAMPLE_ROWS = 1 << 16, 100
_MARKS = tuple(mark.encode() for mark in COMMENTS)
_COMMENT = re.compile(rb"^(?:[#!%]|//|--)(?P<blank> )?[^\n\r]*", re.MULTILINE)
_DIRECTIVE = re.compile(rb'"?sep=([^\w\r\n"])"?[ \t]*\r?\n', re.IGNORECASE)
_MAX_THREADS = 4

P = TypeVar("P")
T = TypeVar("T")


@dataclass(frozen=True)
class Header:
    """The names of the columns, and the line of the first row. ``crlf``: its line ends in CR LF.

    ``comments``: number of comment lines at the beginning of the file. ``commented``: the last of them has the names.
    """

    names: tuple[str, ...]
    first_line: int
    bom: bool
    crlf: bool
    comments: int = 0
    commented: bool = False


def start_of(source: Source) -> bytes:
    """The first bytes of an open file, at most :data:`_HEADER_BYTES`."""
    return source.read(_HEADER_BYTES)


def read_header(
    source: Source, data: bytes, layout: CsvLayout, *, header_line: bool = True, wanted: Sequence[str] = ()
) -> tuple[Header, bytes]:
    """The header of a file that starts with ``data``; also returns the bytes of its start after that.

    Lines that begin with ``#``, ``!``, ``%``, ``//`` or ``--`` are comments; the last of them is the header if it has as
    many names as the line after it has fields, of which none is ``wanted``, unless that line is a header itself.
    ``header_line`` False: columns are named "0", "1", ...; there are as many as in most of the first lines. Raises
    :class:`InputError` for an empty file, and for a header that is not UTF-8, has no end, or whose
    quotes are not closed.
    """
    final = len(data) < _HEADER_BYTES
    directed, length = split_directive(data)
    if directed and directed != layout.delimiter:
        raise InputError(
            f"{source.name}: its first line says that {directed!r} separates the fields; set delimiter: {directed!r} or auto"
        )
    start, comments, last = _first_row(data, length)
    if start == len(data) and final:
        raise InputError(f"{source.name} is empty; expected a header line with the names of the columns")
    if b"\n" not in data[start:]:
        if b"\r" in data[start:].rstrip(b"\r"):
            raise InputError(f"{source.name}: lines end in CR alone; save it with LF (or CR LF) line ends")
        if not final:
            raise InputError(
                f"{source.name}: its first line is longer than {_HEADER_BYTES >> 20} MiB; is this a table with a header?"
            )
    line, rest = 1 + data[:start].count(b"\n"), data[start:]
    record = next(layout.records(rest, final=final), None)
    if record is None or record.fault:
        raise InputError(f"{source.name}: the header line is not whole; check its quotes")
    raw = rest[: record.end]
    crlf = raw.endswith(b"\r\n")
    if not header_line:
        rows = [layout.split_loosely(text) for text in first_lines(layout.plain(rest[:_SAMPLE_BYTES]))[:_SAMPLE_ROWS]]
        count = Counter(map(len, rows)).most_common(1)[0][0]
        return Header(tuple(map(str, range(count))), line, source.bom, crlf, comments), rest
    names = _names(raw, layout, source.name)
    if last and not set(names) & set(wanted):
        titles = _names(last.lstrip(b"#!%/- \t"), layout, source.name)
        rows = [layout.split_loosely(text) for text in first_lines(layout.plain(rest[record.end :][:_SAMPLE_BYTES]))]
        if len(titles) == len(names) > 1 and not _is_header(names, titles, rows[:_SAMPLE_ROWS]):
            return Header(titles, line, source.bom, crlf, comments - 1, commented=True), rest
    return Header(names, line + raw.count(b"\n"), source.bom, crlf, comments), rest[record.end :]


def _is_header(names: Sequence[str], titles: Sequence[str], rows: Sequence[Sequence[str]]) -> bool:
    """Whether a line has the names of the ``rows`` after it, although the comment before it (``titles``) could."""
    known = [
        sum(bool(role_of(n) or plain_name(n) in {*END_WORDS, *RELATION_NAMES}) for n in each)
        for each in (names, titles)
    ]
    if max(known) >= 2:
        return known[0] >= known[1]
    return has_header(names, [row for row in rows if len(row) == len(names)]) is True


def _first_row(data: bytes, start: int) -> tuple[int, int, bytes]:
    """Where the first line of ``data`` is that is neither blank nor a comment, the number of comments before it, and the
    last of them."""
    comments, last = 0, b""
    while start < len(data):
        end = data.find(b"\n", start) + 1 or len(data)
        line = data[start:end].strip()
        if line and not line.startswith(_MARKS):
            break
        comments, last = comments + bool(line), line or last
        start = end
    return start, comments, last


def _names(raw: bytes, layout: CsvLayout, file: str) -> tuple[str, ...]:
    try:
        return tuple(name.strip() for name in layout.split(layout.plain(raw).decode("utf-8")))
    except UnicodeDecodeError:
        raise InputError(f"{file}: the header is not UTF-8 text; convert the file (iconv -f latin1 -t utf-8)") from None
    except csv.Error as error:
        raise InputError(f"{file}: the header line cannot be read ({error})") from None


def without_comments(data: bytes, layout: CsvLayout, *, everywhere: bool) -> tuple[bytes, int]:
    """``data``, which begins with a record, with comment lines left blank; and their number.

    A line that begins as one is a comment if the file begins with comments (``everywhere``), if it has another number of
    fields than the table, or if a blank follows its mark.
    """
    if not data.startswith(_MARKS) and not any(b"\n" + mark in data for mark in _MARKS):
        return data, 0
    quotes = np.flatnonzero(np.frombuffer(data, dtype=np.uint8) == ord('"')) if layout.quoted else np.zeros(0, np.int64)
    comments = 0

    def blank(line: re.Match[bytes]) -> bytes:
        nonlocal comments
        other = everywhere or line["blank"] == b" " or line[0].count(layout.delimiter_byte) + 1 != len(layout.header)
        if not other or np.searchsorted(quotes, line.start()) % 2:
            return line[0]
        comments += 1
        return b""

    return _COMMENT.sub(blank, data), comments


def split_directive(data: bytes) -> tuple[str, int]:
    """The delimiter in Excel's first line ``sep=;``, and the length of that line; ("", 0) if there is none."""
    directive = _DIRECTIVE.match(data)
    return (directive[1].decode(), directive.end()) if directive else ("", 0)


def guess_delimiter(source: Source, data: bytes, wanted: Sequence[str]) -> str:
    """The delimiter in the ``sep=`` line, else the one that fits the header and the first rows best."""
    if directed := split_directive(data)[0]:
        return directed
    best, most = ",", (-1, False, 0)
    for delimiter in (*DELIMITERS, *LAST_RESORTS):
        if delimiter in LAST_RESORTS and most[1]:
            continue
        layout = CsvLayout((), delimiter, quoted=delimiter not in LAST_RESORTS)
        try:
            header, rest = read_header(source, data, layout, wanted=wanted)
        except InputError:
            if delimiter == DELIMITERS[-1] and most[0] < 0:
                raise
            continue
        names, rows = header.names, first_lines(layout.plain(rest[:_SAMPLE_BYTES]))[: 20 if most[0] >= 0 else 1]
        rows = rows if delimiter in LAST_RESORTS else rows[:1]
        widths = [len(layout.split_loosely(row)) == len(names) for row in rows if not row.startswith(COMMENTS)]
        fits = len(names) > 1 and 5 * sum(widths) >= 4 * len(widths)
        if delimiter in LAST_RESORTS and not fits:
            continue
        score = sum(name in wanted for name in names), fits, len(names)
        if score > most:
            best, most = delimiter, score
    return best


def in_threads(parts: Iterable[P], read: Callable[[P], T]) -> Iterator[T]:
    """Yield what ``read`` makes of each part, in the order of the parts, of which only a few are in memory at a time."""
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    threads = max(1, min(_MAX_THREADS, cpus))
    pending: deque[Future[T]] = deque()
    with ThreadPoolExecutor(threads, thread_name_prefix="ingest") as pool:
        try:
            for part in parts:
                pending.append(pool.submit(read, part))
                if len(pending) > threads:
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
        finally:
            for future in pending:
                future.cancel()


def read_pieces(source: Source, header: Header, rest: bytes, layout: CsvLayout) -> Iterator[tuple[bytes, int, bool]]:
    """Yield blocks of complete records: their bytes, the line on which they start, and whether their quotes are regular."""
    line, final = header.first_line, False
    while not final:
        more = source.read(max(BLOCK_BYTES - len(rest), BLOCK_BYTES // 4, 1))
        final = not more
        data = rest + more
        end, regular = cut(data, layout.delimiter_byte, final, layout.quoted)
        if end == 0 and len(data) > LONGEST_LINE:
            raise InputError(f"{source.name}: {too_long(line)}; is this a table?")
        if end:
            piece = data[:end] if end < len(data) else data
            yield piece, line, regular
            line += int(np.count_nonzero(np.frombuffer(piece, dtype=np.uint8) == ord("\n")))
        rest = data[end:]
