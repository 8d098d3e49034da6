"""The rules for the columns of a table, and the check of a block of rows against them, for every kind of file."""

import re
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from graphmill.ingest.records import MAX_FIELD_BYTES
from graphmill.ingest.rejects import Reject
from graphmill.ingest.tables import CATEGORY, MAX_SHOWN

BLANK = " \t\r\n\v\f\u00a0"
"""White space; a required cell must contain other characters."""
TYPES = {"text": pa.string(), "category": CATEGORY, "whole": pa.int64()}
_LARGEST = 2**63 - 1
_NUMBER = re.compile(r"-?[0-9]+|0[xX][0-9a-fA-F]+", re.ASCII)
_NO_BREAK = 0xC2
"""The first byte of a no-break space in UTF-8."""


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
class RowBlock:
    """The usable rows of one block (``table``), the line of the file on which each starts (int64), and its rejects."""

    table: pa.Table
    lines: np.ndarray
    rejects: list[Reject] = field(default_factory=list)

    def rows(self, keep: np.ndarray) -> "RowBlock":
        """The block without the rows that the mask ``keep`` leaves out; with all rejects."""
        if keep.all():
            return self
        return RowBlock(self.table.filter(pa.array(keep)).combine_chunks(), self.lines[keep], self.rejects)


def checked_block(texts: pa.Table, lines: np.ndarray, columns: tuple[Column, ...]) -> RowBlock:
    """A block of ``texts``, which has a column of strings (or a dictionary of them) for each of ``columns``, in order.

    Rows that break the rules of a column become rejects.
    """
    arrays = [texts[place].combine_chunks() for place in range(len(columns))]
    suspects = np.zeros(len(lines), bool)
    for array, column in zip(arrays, columns, strict=True):
        if pa.types.is_dictionary(array.type):
            suspects |= _suspects(array.dictionary, column)[array.indices.to_numpy()]
        else:
            suspects |= _suspects(array, column)
    bad, rejects, numbers = np.zeros(len(lines), bool), list[Reject](), dict[tuple[int, int], int]()
    for row in np.flatnonzero(suspects).tolist():
        for place, column in enumerate(columns):
            text = arrays[place][row].as_py()
            if reason := _why_unusable(text, column):
                rejects.append(Reject(int(lines[row]), column.name, reason, printable(text)))
                bad[row] = True
                break
            if column.kind == "whole":
                bare = text.strip(BLANK)
                numbers[place, row] = int(bare, 16) if bare[:2] in ("0x", "0X") else int(bare.lstrip("-0") or "0")
    out = []
    for place, (array, column) in enumerate(zip(arrays, columns, strict=True)):
        if column.kind == "whole":
            read = pa.array(
                [str(numbers.get((place, row), 0)) for row in np.flatnonzero(suspects).tolist()], pa.string()
            )
            array = pc.replace_with_mask(array, pa.array(suspects), read)
        out.append(array.cast(TYPES[column.kind]))
    return RowBlock(pa.table(out, pa.schema([(c.name, TYPES[c.kind]) for c in columns])), lines, rejects).rows(~bad)


def _suspects(text: pa.StringArray, column: Column) -> np.ndarray:
    """The rows (bool) whose value may break the column's rules. Only texts that begin with white space are trimmed."""
    if not len(text):
        return np.zeros(0, bool)
    bounds = np.frombuffer(text.buffers()[1], np.int32)[text.offset : text.offset + len(text) + 1]
    data = np.frombuffer(text.buffers()[2] or b"", np.uint8)
    lengths = np.diff(bounds)
    faulty: np.ndarray = lengths > MAX_FIELD_BYTES
    if not data[bounds[0] : bounds[-1]].all():
        faulty |= np.asarray(pc.match_substring(text, "\0"), bool)
    if column.required:
        filled = np.flatnonzero(lengths)
        faulty |= lengths == 0
        first = data[bounds[filled]]
        spaced = filled[(first <= ord(" ")) | (first == _NO_BREAK)]
        faulty[spaced] |= np.asarray(pc.equal(pc.utf8_trim(text.take(pa.array(spaced)), BLANK), ""), bool)
    if column.kind == "whole":
        try:
            if pc.min(text.cast(pa.int64())).as_py() >= 0:
                return faulty
        except pa.ArrowInvalid:
            pass
        faulty |= ~np.asarray(pc.match_substring_regex(text, r"^[0-9]{1,18}$"), bool)
    return faulty


def _why_unusable(text: str, column: Column) -> str:
    if "\0" in text:
        return "holds a NUL byte"
    if len(text.encode()) > MAX_FIELD_BYTES:
        return f"longer than {MAX_FIELD_BYTES:,} bytes"
    bare = text.strip(BLANK)
    if column.required and not bare:
        return "blank"
    if column.kind != "whole":
        return ""
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


def printable(text: str) -> str:
    r"""The beginning of a text, as it can be stored in UTF-8: bytes that were none are written as \xNN."""
    start = text[: 4 * MAX_SHOWN].encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    return start.replace("\0", "\\0")[:MAX_SHOWN]
