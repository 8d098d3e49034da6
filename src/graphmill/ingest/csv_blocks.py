"""Reads any CSV file as a stream of checked Arrow blocks, with the line number of every row and reject.

No single parser is fast and gives line numbers: pyarrow's does not name lines when it uses threads. So the file is cut
into blocks at record boundaries, threads parse the blocks with pyarrow, and each block is checked as a whole. If a
block has an error, it is split, and the wrong part is read again by a parser that knows its lines
(:mod:`graphmill.ingest.csv_careful`). Both ways give the same rows and the same rejects.

The readers interpret the columns.
"""

import csv
import os
import re
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
import pyarrow as pa

from graphmill.errors import InputError
from graphmill.ingest.csv_careful import read_carefully
from graphmill.ingest.csv_parsers import CsvLayout, Doubt, read_fast
from graphmill.ingest.files import Source
from graphmill.ingest.records import cut
from graphmill.ingest.rejects import Reject

BLOCK_BYTES = 16 << 20
_HEADER_BYTES = 1 << 20
_LONGEST_RECORD = 64 << 20
_DIRECTIVE = re.compile(rb'"?sep=([^\w\r\n"])"?[ \t]*\r?\n', re.IGNORECASE)
_MAX_THREADS = 4

T = TypeVar("T")


@dataclass(frozen=True)
class Lines:
    """The line of the file on which each row of a block starts: ``exact[row]``, or ``first + row`` if ``exact`` is empty."""

    first: int
    exact: np.ndarray

    def of(self, rows: np.ndarray) -> np.ndarray:
        """The lines (int64) of ``rows``."""
        return self.exact[rows] if len(self.exact) else self.first + rows.astype(np.int64)


@dataclass(frozen=True)
class CsvBlock:
    """The usable rows of one block (``table``, with the layout's columns) and its rejects."""

    table: pa.Table
    lines: Lines
    rejects: list[Reject] = field(default_factory=list)

    def line(self, row: int) -> int:
        """The line of the file on which ``row`` starts."""
        return int(self.lines.of(np.array([row]))[0])


@dataclass(frozen=True)
class Header:
    """The names of the columns, and the line of the first row. ``crlf``: the header line ends in CR LF."""

    names: tuple[str, ...]
    first_line: int
    bom: bool
    crlf: bool


def read_header(source: Source, delimiter: str) -> tuple[Header, bytes]:
    """Read the header of ``source``; also returns the bytes already read after it.

    Raises :class:`InputError` for an empty file, and for a header that is not UTF-8 or whose quotes are not closed.
    """
    data = source.read(_HEADER_BYTES)
    final = len(data) < _HEADER_BYTES
    directed, length = split_directive(data)
    if directed and directed != delimiter:
        raise InputError(
            f"{source.name}: its first line says that {directed!r} separates the fields; set delimiter: {directed!r} or auto"
        )
    skipped = data[:length].count(b"\n")
    data = data[length:]
    blank = len(data) - len(data.lstrip(b"\r\n"))
    if blank == len(data):
        raise InputError(f"{source.name} is empty; expected a header line with the names of the columns")
    if b"\n" not in data[blank:] and b"\r" in data[blank:].rstrip(b"\r"):
        raise InputError(f"{source.name}: lines end in CR alone; save it with LF (or CR LF) line ends")
    layout = CsvLayout((), delimiter)
    rest = data[blank:]
    record = next(layout.records(rest, final=final), None)
    if record is None or record.fault:
        raise InputError(f"{source.name}: the header line is not whole; check its quotes")
    raw = rest[: record.end]
    try:
        names = layout.split(raw.decode("utf-8"))
    except UnicodeDecodeError:
        raise InputError(
            f"{source.name}: the header is not UTF-8 text; convert the file (iconv -f latin1 -t utf-8)"
        ) from None
    except csv.Error as error:
        raise InputError(f"{source.name}: the header line cannot be read ({error})") from None
    first_line = 1 + skipped + data[: blank + record.end].count(b"\n")
    header = Header(tuple(n.strip() for n in names), first_line, source.bom, raw.endswith(b"\r\n"))
    return header, rest[record.end :]


def split_directive(data: bytes) -> tuple[str, int]:
    """The delimiter in Excel's first line ``sep=;``, and the length of that line; ("", 0) if there is none."""
    found = _DIRECTIVE.match(data)
    return (found[1].decode(), found.end()) if found else ("", 0)


def read_blocks(
    source: Source, header: Header, rest: bytes, layout: CsvLayout, digest: Callable[[CsvBlock], T]
) -> Iterator[tuple[T, list[Reject]]]:
    """Yield the result of ``digest`` for each block, in the order of the file, with the rejects of the block.

    ``digest`` runs in the parsing threads, so that blocks can be freed afterwards. Only a few blocks are in memory at a
    time. Raises the :class:`InputError` of reading.
    """
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    threads = max(1, min(_MAX_THREADS, cpus))
    pending: deque[Future[tuple[T, list[Reject]]]] = deque()
    with ThreadPoolExecutor(threads, thread_name_prefix="ingest") as pool:
        try:
            for data, first_line, regular in _pieces(source, header, rest, layout):
                pending.append(pool.submit(_work, data, first_line, regular, layout, digest))
                if len(pending) > threads:
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
        finally:
            for future in pending:
                future.cancel()


def _work(
    data: bytes, first_line: int, regular: bool, layout: CsvLayout, digest: Callable[[CsvBlock], T]
) -> tuple[T, list[Reject]]:
    rejects: list[Reject] = []
    try:
        if not regular:
            raise Doubt
        table, lines = read_fast(data, first_line, layout)
    except Doubt:
        table, lines, rejects = read_carefully(data, first_line, layout)
    return digest(CsvBlock(table, Lines(first_line, lines), rejects)), rejects


def _pieces(source: Source, header: Header, rest: bytes, layout: CsvLayout) -> Iterator[tuple[bytes, int, bool]]:
    """Yield blocks of complete records: their bytes, the line on which they start, and whether their quotes are regular."""
    line, final = header.first_line, False
    while not final:
        more = source.read(max(BLOCK_BYTES - len(rest), BLOCK_BYTES // 4, 1))
        final = not more
        data = rest + more
        end, regular = cut(data, layout.delimiter_byte, final)
        if end == 0 and len(data) > _LONGEST_RECORD:
            raise InputError(
                f"{source.name}: line {line} is longer than {_LONGEST_RECORD >> 20} MiB; is this a CSV file?"
            )
        if end:
            piece = data[:end] if end < len(data) else data
            yield piece, line, regular
            line += int(np.count_nonzero(np.frombuffer(piece, dtype=np.uint8) == ord("\n")))
        rest = data[end:]
