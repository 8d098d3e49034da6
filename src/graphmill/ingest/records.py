"""Finds the bounds of CSV records: the exact rules, byte by byte, and a fast cut that follows them.

A quote opens a quoted field only at the start of a field. Within it, ``""`` is a quote, and a line break is text. The
closing quote must be followed by the delimiter or the end of the line, and must come within :data:`MAX_FIELD_BYTES`.
Otherwise the record is *broken*: it ends with its first line, and the next line is a new record. So a missing quote
costs one line and never the rest of the file.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

MAX_FIELD_BYTES = 131_072
"""The longest field, which is also the limit of the standard library's csv module. Anything longer is damaged."""

_QUOTE, _NEWLINE, _RETURN = 0x22, 0x0A, 0x0D


@dataclass(frozen=True, slots=True)
class Record:
    """Bytes ``start`` to ``end``, including the line break, are one record. ``fault``: its error, or empty."""

    start: int
    end: int
    fault: str = ""


def records(data: bytes, delimiter: bytes, final: bool, quoted: bool = True) -> Iterator[Record]:
    """The records of ``data``, which begins with a record. Blank lines count as records.

    It stops before an incomplete record, unless ``final`` says that no more bytes follow.
    """
    position, size = 0, len(data)
    while position < size:
        newline = data.find(b"\n", position)
        if newline < 0 and not final:
            return
        line_end = newline + 1 if newline >= 0 else size
        quote = quoted and data.find(b'"', position, line_end) >= 0
        record = _quoted_record(data, position, line_end, delimiter, final) if quote else Record(position, line_end)
        if record is None:
            return
        yield record
        position = record.end


def _quoted_record(data: bytes, start: int, line_end: int, delimiter: bytes, final: bool) -> Record | None:
    """The record at ``start``, whose first line has a quote; None if more bytes are needed."""
    field, size = start, len(data)
    while True:
        if data[field : field + 1] != b'"':
            newline = data.find(b"\n", field)
            record_end = newline + 1 if newline >= 0 else size
            next_field = data.find(delimiter, field, record_end)
            if next_field >= 0:
                field = next_field + 1
                continue
            return Record(start, record_end) if newline >= 0 or final else None
        closing = _closing_quote(data, field)
        if closing >= size and size - field <= MAX_FIELD_BYTES and not final:
            return None
        if closing >= size or closing - field > MAX_FIELD_BYTES:
            where = "before the end of the file" if closing >= size and final else f"within {MAX_FIELD_BYTES:,} bytes"
            return Record(start, line_end, f"a quote opens a field here and does not close {where}")
        after = data[closing + 1 : closing + 3]
        if after.startswith(delimiter):
            field = closing + 2
        elif after.startswith(b"\n") or after == b"\r\n":
            return Record(start, data.index(b"\n", closing) + 1)
        elif after in (b"", b"\r"):
            return Record(start, size) if final else None
        else:
            return Record(start, line_end, "text after the closing quote of a field (or a quote that was never closed)")


def _closing_quote(data: bytes, opening: int) -> int:
    """Position of the field's closing quote; ``len(data)`` if it is not in ``data`` or beyond the limit."""
    position = data.find(b'"', opening + 1, opening + MAX_FIELD_BYTES + 2)
    while position >= 0 and data[position + 1 : position + 2] == b'"':
        position = data.find(b'"', position + 2, opening + MAX_FIELD_BYTES + 2)
    if position < 0:
        return opening + MAX_FIELD_BYTES + 1 if len(data) > opening + MAX_FIELD_BYTES + 1 else len(data)
    return position


def is_regular(data: bytes, quotes: np.ndarray, delimiter: bytes) -> bool:
    """Whether every quote in ``data`` (at positions ``quotes``) opens or closes a field or is doubled within one.

    Then quotes alternate between opening and closing (a doubled one closes and opens again), so a line break is within
    a field exactly if an odd number of quotes precedes it.
    """
    view = np.frombuffer(data, dtype=np.uint8)
    opening, closing = quotes[0::2], quotes[1::2]
    before = view[np.maximum(opening - 1, 0)]
    opens = (before == ord(delimiter)) | (before == _NEWLINE) | (before == _QUOTE) | (opening == 0)
    last = len(view) - 1
    after, beyond = view[np.minimum(closing + 1, last)], view[np.minimum(closing + 2, last)]
    closes = (after == ord(delimiter)) | (after == _NEWLINE) | (after == _QUOTE) | (closing == last)
    closes |= (after == _RETURN) & ((beyond == _NEWLINE) | (closing + 1 == last))
    return bool(opens.all()) and bool(closes.all())


def cut(data: bytes, delimiter: bytes, final: bool, quoted: bool = True) -> tuple[int, bool]:
    """The number of bytes of ``data`` that are complete records (0: none), and whether their quotes are regular."""
    quotes = np.flatnonzero(np.frombuffer(data, dtype=np.uint8) == _QUOTE) if quoted else np.zeros(0, np.int64)
    if len(quotes) == 0:
        return (len(data) if final else data.rfind(b"\n") + 1), True
    if is_regular(data, quotes, delimiter):
        end = _regular_end(data, quotes, final)
        if end and _longest_quoted(quotes, end) <= MAX_FIELD_BYTES:
            return end, True
    return max((record.end for record in records(data, delimiter, final)), default=0), False


def _regular_end(data: bytes, quotes: np.ndarray, final: bool) -> int:
    """The end of the last record in ``data`` with regular quotes; 0 if an exact check is needed."""
    if final:
        return len(data) if len(quotes) % 2 == 0 else 0
    # The last line break outside of a quoted field.
    newlines = np.flatnonzero(np.frombuffer(data, dtype=np.uint8) == _NEWLINE)
    outside = newlines[np.searchsorted(quotes, newlines) % 2 == 0]
    return int(outside[-1]) + 1 if len(outside) else 0


def _longest_quoted(quotes: np.ndarray, end: int) -> int:
    """The length of the longest quoted field up to ``end``, including doubled quotes."""
    inside = quotes[: int(np.searchsorted(quotes, end))]
    opening, closing = inside[0::2], inside[1::2]
    if len(closing) == 0:
        return 0
    first = np.flatnonzero(np.concatenate([[True], opening[1:] != closing[:-1] + 1]))
    last = np.append(first[1:], len(closing)) - 1
    return int((closing[last] - opening[first]).max())
