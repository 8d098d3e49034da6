"""Whole numbers that a program wrote as decimals (``7.0``), because its columns of whole numbers know no gaps: as ids they
are the whole numbers."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from decimal import Decimal, InvalidOperation

import numpy as np
import pyarrow as pa

from graphmill.ingest.cells import RowBlock
from graphmill.ingest.rejects import Reject
from graphmill.ingest.tables import MAX_SHOWN

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
