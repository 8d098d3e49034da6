"""The careful CSV parser: reads what the fast one rejected, and gives the line and reason of every reject.

It passes as much as possible to the fast parser, and reads only single records itself.
"""

import csv
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from graphmill.ingest.csv_parsers import BLANK, Column, CsvLayout, Doubt, read_fast
from graphmill.ingest.records import MAX_FIELD_BYTES, Record, is_regular
from graphmill.ingest.rejects import Reject
from graphmill.ingest.tables import MAX_SHOWN

_PARTS, _FEW_RECORDS = 8, 64
_LARGEST = 2**63 - 1
_TOO_LONG = f"longer than {MAX_FIELD_BYTES:,} bytes"
_NUMBER = re.compile(r"-?[0-9]+|0[xX][0-9a-fA-F]+", re.ASCII)

_Part = tuple[pa.Table, np.ndarray]
"""Rows and the line of each."""


def read_carefully(data: bytes, first_line: int, layout: CsvLayout) -> tuple[pa.Table, np.ndarray, list[Reject]]:
    """The usable rows of ``data``, their lines, and a reject for each other row, in any order."""
    rejects: list[Reject] = []
    parts = _narrowed(data, list(layout.records(data, final=True)), first_line, layout, rejects)
    empty = layout.schema.empty_table(), np.zeros(0, dtype=np.int64)
    tables, lines = zip(empty, *parts, strict=True)
    line = np.concatenate(lines)
    order = np.argsort(line, kind="stable")
    whole = pa.concat_tables(tables).unify_dictionaries().take(pa.array(order)).combine_chunks()
    return whole, line[order], rejects


def _narrowed(data: bytes, group: list[Record], line: int, layout: CsvLayout, rejects: list[Reject]) -> Iterator[_Part]:
    """The usable rows of the records ``group``, which starts on ``line``.

    The records are split repeatedly, and only the few around an error are read one by one.
    """
    size = max(-(-len(group) // _PARTS), 1)
    for start in range(0, len(group), size):
        part = group[start : start + size]
        text = data[part[0].start : part[-1].end]
        try:
            if any(r.fault for r in part) or not _regular(text, layout):
                raise Doubt
            table, lines = read_fast(text, line, layout)
            yield table, lines if len(lines) else line + np.arange(table.num_rows)
        except Doubt:
            if len(part) > _FEW_RECORDS:
                yield from _narrowed(data, part, line, layout, rejects)
            else:
                breaks = [data.count(b"\n", r.start, r.end) for r in part]
                lines_of = line + np.cumsum([0, *breaks[:-1]])
                yield _read_records(data, part, lines_of.tolist(), layout, rejects)
        line += text.count(b"\n")


def _regular(data: bytes, layout: CsvLayout) -> bool:
    if not layout.quoted:
        return True
    quotes = np.flatnonzero(np.frombuffer(data, dtype=np.uint8) == ord('"'))
    return len(quotes) % 2 == 0 and is_regular(data, quotes, layout.delimiter_byte)


def _read_records(
    data: bytes, group: list[Record], lines: list[int], layout: CsvLayout, rejects: list[Reject]
) -> _Part:
    """The usable records of ``group``, which start on ``lines``; the others become rejects."""
    positions = [layout.header.index(c.name) for c in layout.columns]
    kept: list[list[Any]] = [[] for _ in layout.columns]
    found_on = []
    for record, line in zip(group, lines, strict=True):
        raw = data[record.start : record.end]
        if raw not in (b"\n", b"\r\n", b"\r", b""):
            found = _read_record(raw, line, record.fault, layout, positions)
            if isinstance(found, Reject):
                rejects.append(found)
            else:
                found_on.append(line)
                for values, value in zip(kept, found, strict=True):
                    values.append(value)
    arrays = [pa.array(values, kind) for values, kind in zip(kept, layout.schema.types, strict=True)]
    return pa.table(arrays, layout.schema), np.array(found_on, dtype=np.int64)


def _read_record(raw: bytes, line: int, fault: str, layout: CsvLayout, positions: list[int]) -> list[Any] | Reject:
    """The values of one record, which starts on ``line``, or its reject."""
    # Bytes that are not UTF-8 become lone surrogates, which show later in which field they are.
    text = raw.decode("utf-8", errors="surrogateescape")
    try:
        fields = [] if fault else layout.split(text)
    except csv.Error as error:
        fault = "a carriage return within the row" if "new-line" in str(error) else _TOO_LONG
    if not fault and len(fields) != len(layout.header):
        fault = f"expected {len(layout.header)} fields, found {len(fields)}"
        spanned = raw.rstrip(b"\r\n").count(b"\n")
        fault += f" (a quoted field of this row goes on over {spanned + 1} lines)" if spanned else ""
    if fault:
        return Reject(line, "", fault, _printable(text.rstrip("\r\n")))
    values = []
    for column, position in zip(layout.columns, positions, strict=True):
        value = checked_value(fields[position], column, line)
        if isinstance(value, Reject):
            return value
        values.append(value)
    return values


def checked_value(text: str, column: Column, line: int) -> str | int | Reject:
    """The value of a cell of the row on ``line`` by the rules of its column, or its reject."""
    if reason := _why_unusable(text, column):
        return Reject(line, column.name, reason, _printable(text))
    return _whole(text) if column.kind == "whole" else text


def _whole(text: str) -> int:
    bare = text.strip(BLANK)
    return int(bare, 16) if bare[:2] in ("0x", "0X") else int(bare.lstrip("-0") or "0")


def _why_unusable(text: str, column: Column) -> str:
    if "\0" in text:
        return "holds a NUL byte"
    if not text.isascii() and any("\ud800" <= c <= "\udfff" for c in text):
        return "not UTF-8 text; convert the file (for Latin-1: iconv -f latin1 -t utf-8)"
    if len(text.encode()) > MAX_FIELD_BYTES:
        return _TOO_LONG
    bare = text.strip(BLANK)
    if column.required and not bare:
        return "blank"
    return _why_no_whole(bare) if column.kind == "whole" else ""


def _why_no_whole(bare: str) -> str:
    if not _NUMBER.fullmatch(bare):
        return "not a whole number"
    if bare.startswith("-") and bare.strip("-0"):
        return "negative"
    digits = bare.lstrip("-0")
    # Check the length first: Python refuses to convert text with thousands of digits.
    large = len(bare) > 18 or int(bare, 16) > _LARGEST if digits[:1] in ("x", "X") else len(digits) > 19
    if large or (digits.isdigit() and int(digits) > _LARGEST):
        return f"larger than {_LARGEST}"
    return ""


def _printable(text: str) -> str:
    """The beginning of a text, as it can be stored in UTF-8: bytes that were none are shown as \\xNN."""
    shown = text[: 4 * MAX_SHOWN].encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    return shown.replace("\0", "\\0")[:MAX_SHOWN]
