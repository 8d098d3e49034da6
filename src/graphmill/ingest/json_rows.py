"""Reads files with one JSON object per line as checked blocks; and checks blocks whose cells are text already."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from graphmill.ingest.csv_blocks import CsvBlock, Lines
from graphmill.ingest.csv_careful import checked_value
from graphmill.ingest.csv_parsers import BLANK, Column, CsvLayout
from graphmill.ingest.files import lines_of
from graphmill.ingest.records import MAX_FIELD_BYTES
from graphmill.ingest.rejects import Reject
from graphmill.ingest.tables import MAX_SHOWN
from graphmill.ingest.whole_ids import whole_number

LIST_MARK = "|"
"""Separator of the values of a list that is read as text."""
_KEYS_FROM = 1000
"""Number of objects whose keys become the columns of a JSON-lines file. A key that first occurs later is not read."""


class _Decimal(str):
    """The text of a decimal number in JSON."""


def _json_records(path: str | Path) -> Iterator[tuple[int, Any, str]]:
    """Yield line number, object (None if the line is not an object) and text of every line that is not blank."""
    for number, raw in lines_of(path):
        if not raw.strip():
            continue
        try:
            found = json.loads(raw, parse_int=str, parse_float=_Decimal, parse_constant=str)
        except (ValueError, RecursionError):
            found = None
        yield number, found if isinstance(found, dict) else None, raw.decode("utf-8", errors="replace")


def json_names(path: str | Path) -> list[str]:
    """The keys of the first objects, as names of columns."""
    names: dict[str, None] = {}
    for _, record, _ in islice(_json_records(path), _KEYS_FROM):
        names |= dict.fromkeys(filter(_is_unicode, record or ()))
    return list(names)


def json_blocks(path: str | Path, layout: CsvLayout, decimals: list[tuple[str, int]], rows: int) -> Iterator[CsvBlock]:
    """Blocks of at most ``rows`` lines. ``decimals``: gets the column of each whole number that is written as decimal."""
    records = _json_records(path)
    while part := list(islice(records, rows)):
        rejects = [
            Reject(line, "", "no JSON object", text[:MAX_SHOWN].replace("\0", "\\0"))
            for line, r, text in part
            if r is None
        ]
        found = [(line, record) for line, record, _ in part if record is not None]
        columns: dict[str, pa.StringArray] = {}
        odd: dict[int, Reject] = {}
        for column in layout.columns:
            values = []
            for line, record in found:
                value = _json_text(record.get(column.name))
                fault = (
                    "neither text nor a number" if value is None else "" if _is_unicode(value) else "half a character"
                )
                if column.names and isinstance(value, _Decimal):
                    value, fault = whole_number(value)
                    decimals.append((column.name, 1))
                if fault:
                    shown_value = json.dumps(record[column.name])[:MAX_SHOWN]
                    odd.setdefault(line, Reject(line, column.name, fault, shown_value))
                values.append("" if fault else value)
            columns[column.name] = pa.array(values, pa.string())
        kept = np.array([line not in odd for line, _ in found], bool)
        lines = np.array([line for line, _ in found], np.int64)[kept]
        block = checked_block({n: c.filter(pa.array(kept)) for n, c in columns.items()}, lines, layout)
        yield replace(block, rejects=[*rejects, *odd.values(), *block.rejects])


def _json_text(value: Any) -> str | None:
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return value
    if isinstance(value, list) and all(isinstance(part, str) for part in value):
        return LIST_MARK.join(value)
    return None


def _is_unicode(text: str) -> bool:
    """Whether the text is valid Unicode: JSON may have one half of a surrogate pair, such as ``"\\ud800"``."""
    try:
        return text.isascii() or bool(text.encode())
    except UnicodeEncodeError:
        return False


def checked_block(columns: dict[str, pa.StringArray], lines: np.ndarray, layout: CsvLayout) -> CsvBlock:
    """Text columns as a block. Rows that break the rules of ``layout.columns`` become rejects."""
    bad = np.zeros(len(lines), bool)
    suspects = np.zeros(len(lines), bool)
    for column in layout.columns:
        suspects |= _suspect(columns[column.name], column)
    rejects, values = list[Reject](), dict[tuple[str, int], Any]()
    for row in np.flatnonzero(suspects).tolist():
        for column in layout.columns:
            text = columns[column.name][row].as_py()
            found = checked_value(text, column, int(lines[row]))
            if isinstance(found, Reject):
                rejects.append(found)
                bad[row] = True
                break
            values[column.name, row] = found
    keep = pa.array(~bad)
    arrays = []
    for column in layout.columns:
        array = columns[column.name]
        if column.kind == "whole":
            texts = array.to_pylist()
            whole = [values.get((column.name, row), text) for row, text in enumerate(texts)]
            array = pa.array([0 if bad[row] else int(value) for row, value in enumerate(whole)], pa.int64())
        array = array.filter(keep)
        arrays.append(array.dictionary_encode() if column.kind == "category" else array)
    table = pa.table(arrays, layout.schema)
    return CsvBlock(table, Lines(1, lines[~bad]), rejects)


def _suspect(text: pa.StringArray, column: Column) -> np.ndarray:
    """Rows whose value may break the column's rules."""
    odd = pc.or_(pc.greater(pc.binary_length(text), MAX_FIELD_BYTES // 4), pc.match_substring(text, "\0"))
    if column.required:
        odd = pc.or_(odd, pc.equal(pc.utf8_trim(text, BLANK), ""))
    if column.kind == "whole":
        odd = pc.or_(odd, pc.invert(pc.match_substring_regex(text, r"^[0-9]{1,18}$")))
    return np.asarray(odd.to_numpy(zero_copy_only=False), bool)
