"""The rules for the columns of a table, and the check of a block of rows against them, for every kind of file.

Whole numbers that a program wrote as decimals (``7.0``), because its columns of whole numbers know no gaps, are the whole
numbers where they are ids.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal, InvalidOperation
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from graphmill.ingest.names import BLANK
from graphmill.ingest.tables import CATEGORY, MAX_SHOWN, Reject
from graphmill.ingest.times import TIME, UNTIMED, Time, parse_time, whole_times

MAX_FIELD_BYTES = 131_072
"""The longest field, which is also the limit of the standard library's csv module. Anything longer is damaged."""
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

    def rows(self, keep: np.ndarray) -> RowBlock:
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


def parsed_column(
    column: pa.DictionaryArray, parse: Callable[[str], Any], nothing: Any, kind: npt.DTypeLike
) -> tuple[np.ndarray, list[tuple[int, str]]]:
    """What ``parse`` makes of each row's text without white space around it, as an array of ``kind``; and row and text of
    each cell that it cannot read, for which it returns None. There is ``nothing`` in the array."""
    texts, codes = column.dictionary.to_pylist(), column.indices.to_numpy(zero_copy_only=False)
    read = [parse(text.strip()) for text in texts]
    wrong = np.array([value is None for value in read], bool)[codes]
    values = np.array([nothing if value is None else value for value in read], kind)[codes]
    return values, [(row, texts[codes[row]]) for row in np.flatnonzero(wrong).tolist()]


def times_of(
    column: pa.DictionaryArray, parse: Callable[[str], Time | None] = parse_time
) -> tuple[np.ndarray, list[tuple[int, str]]]:
    """The times of a column with the type :data:`~graphmill.ingest.times.TIME`, and the cells that are none, as
    :func:`parsed_column` has them."""
    hexadecimal = pc.any(pc.match_substring(column.dictionary, "x", ignore_case=True)).as_py()  # the cast would read it
    try:
        numbers = None if hexadecimal else pc.cast(column.dictionary, pa.int64()).to_numpy()
    except pa.ArrowInvalid:
        numbers = None
    if numbers is None:
        return parsed_column(column, parse, UNTIMED, TIME)
    return whole_times(numbers)[column.indices.to_numpy(zero_copy_only=False)], []


def printable(text: str) -> str:
    r"""The beginning of a text, as it can be stored in UTF-8: bytes that were none are written as \xNN."""
    start = text[: 4 * MAX_SHOWN].encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    return start.replace("\0", "\\0")[:MAX_SHOWN]


_WHOLE = re.compile(r"[+-]?[0-9]+(?P<point>\.0*)?|[+-]?[0-9](\.[0-9]+)?(?P<power>[eE]\+[0-9]+)")
_ROUNDED = re.compile(r"[+-]?[0-9]\.(?P<digits>[0-9]{5,})[eE]\+(?P<power>[0-9]+)")
"""``1.23457E+15``, as spreadsheets show long numbers: the digits that are left out are lost."""
SAMPLE_ROWS = 5000
PREVIEW_ROWS = 100


def are_decimals(cells: Sequence[str]) -> bool:
    """Whether texts are whole numbers, of which some are written as decimals."""
    matches = [_WHOLE.fullmatch(cell) for cell in cells if cell]
    return all(matches) and any(each and (each["point"] or each["power"]) for each in matches)


_MONTH = r"(Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]*\.?"
_DAY = "|".join((
    r"[0-9]{4}([-/.])[0-9]{1,2}\2[0-9]{1,2}", r"[0-9]{1,2}([-/.])[0-9]{1,2}\3([0-9]{4}|[0-9]{2})", r"[0-9]{4}-W?[0-9]{2}",
    r"(19|20)[0-9]{2}(0[1-9]|1[0-2])(0[1-9]|[12][0-9]|3[01])", rf"{_MONTH} [0-9]{{1,2}},? [0-9]{{4}}",
    rf"[0-9]{{1,2}}\.?[ -]{_MONTH}[ -][0-9]{{2,4}}",
))  # fmt: skip
_DATE = re.compile(
    rf"({_DAY})([ T][0-9:.,]+ *([AP]M|[+-][0-9:]+|Z|UTC)?)?|[0-9]{{1,2}}:[0-9]{{2}}(:[0-9.]+)?", re.IGNORECASE
)


def are_dates(cells: Sequence[str]) -> bool:
    """Whether texts are dates or times of the day."""
    return bool(cells) and all(_DATE.fullmatch(cell) for cell in cells)


def whole_number(text: str, bits: int = 53) -> tuple[str, str]:
    """The whole number that a decimal one is (``7.0`` is ``7``), and why it can be no id, empty if it can.

    Text without a point or an exponent stays as it is. ``bits``: of the numbers' mantissa; larger ones are not exact.
    """
    try:
        number = Decimal(text.strip()) if bits < 53 or re.search(r"[.eEnN]", text) else None
    except InvalidOperation:
        number = None
    if number is None:
        return text, ""
    if not number.is_finite() or number != number.to_integral_value():
        return text, "" if number.is_nan() else "a number with a fraction is no id"
    if (rounded := _ROUNDED.fullmatch(text.strip())) and len(rounded["digits"]) < int(rounded["power"]):
        return text, "a number that was rounded when it was written is no id; write ids as whole numbers or text"
    if abs(number) >= 2**bits:
        return text, f"a decimal number from 2^{bits} on is no exact id; write ids as whole numbers or text"
    return str(int(number)), ""


def with_whole_ids(block: RowBlock, names: Mapping[str, int], decimals: list[tuple[str, int]], every: bool) -> RowBlock:
    """The block with decimal numbers in the columns ``names`` as whole ones; rows with another number become rejects.

    ``names``: column → bits of the mantissa. ``decimals``: gets each column with the number of its decimals; ``every``:
    all its numbers are.
    """
    keep, table = np.ones(block.table.num_rows, bool), block.table
    for name, bits in names.items():
        column = table[name].combine_chunks()
        coded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
        texts = coded.dictionary.to_pylist()
        numbers = [whole_number(text, bits) for text in texts]
        codes = coded.indices.to_numpy(zero_copy_only=False)
        changed = np.array([new != old for (new, _), old in zip(numbers, texts, strict=True)], bool)
        wrong = np.array([bool(fault) for _, fault in numbers], bool)[codes]
        for row in np.flatnonzero(wrong & keep).tolist():
            fault, value = numbers[codes[row]][1], texts[codes[row]][:MAX_SHOWN]
            block.rejects.append(Reject(int(block.lines[row]), name, fault, value))
        keep &= ~wrong
        if number := int(((every | changed)[codes] & ~wrong).sum()):
            decimals.append((name, number))
        new = pa.DictionaryArray.from_arrays(coded.indices, pa.array([text for text, _ in numbers], pa.string()))
        new = new.dictionary_decode()
        new = new.dictionary_encode() if pa.types.is_dictionary(column.type) else new
        table = table.set_column(table.schema.get_field_index(name), table.schema.field(name), new)
    return replace(block, table=table.combine_chunks()).rows(keep)
