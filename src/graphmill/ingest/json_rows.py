"""Reads files with one JSON object per line as checked blocks."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from graphmill.ingest.cells import Column, RowBlock, checked_block, whole_number
from graphmill.ingest.files import lines_of
from graphmill.ingest.tables import MAX_SHOWN, Reject

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
            value_of_line = json.loads(raw, parse_int=str, parse_float=_Decimal, parse_constant=str)
        except (ValueError, RecursionError):
            value_of_line = None
        yield number, value_of_line if isinstance(value_of_line, dict) else None, raw.decode("utf-8", errors="replace")


def json_names(path: str | Path) -> list[str]:
    """The keys of the first objects, as names of columns."""
    names: dict[str, None] = {}
    for _, record, _ in islice(_json_records(path), _KEYS_FROM):
        names |= dict.fromkeys(filter(_is_unicode, record or ()))
    return list(names)


def json_blocks(
    path: str | Path, columns: tuple[Column, ...], decimals: list[tuple[str, int]], rows: int
) -> Iterator[RowBlock]:
    """Blocks of at most ``rows`` lines. ``decimals``: gets the column of each whole number that is written as decimal."""
    records = _json_records(path)
    while part := list(islice(records, rows)):
        rejects, lines = list[Reject](), list[int]()
        texts: dict[str, list[str]] = {column.name: [] for column in columns}
        for line, record, source in part:
            if record is None:
                rejects.append(Reject(line, "", "no JSON object", source[:MAX_SHOWN].replace("\0", "\\0")))
                continue
            values = [_cell(record.get(column.name), column) for column in columns]
            wrong = next((place for place, (_, fault) in enumerate(values) if fault), None)
            if wrong is not None:
                name = columns[wrong].name
                rejects.append(Reject(line, name, values[wrong][1], json.dumps(record[name])[:MAX_SHOWN]))
                continue
            lines.append(line)
            for column, (text, _) in zip(columns, values, strict=True):
                texts[column.name].append(text)
                if column.names and isinstance(record.get(column.name), _Decimal):
                    decimals.append((column.name, 1))
        block = checked_block(
            pa.table({name: pa.array(values, pa.string()) for name, values in texts.items()}),
            np.array(lines, np.int64),
            columns,
        )
        block.rejects.extend(rejects)
        yield block


def _cell(value: Any, column: Column) -> tuple[str, str]:
    """The text of a value, and why it cannot be used, empty if it can."""
    text = "" if value is None else value
    if isinstance(value, bool):
        text = str(value).lower()
    elif isinstance(value, list) and all(part is None or isinstance(part, str) for part in value):
        text = LIST_MARK.join(part or "" for part in value)
    if not isinstance(text, str):
        return "", "neither text nor a number"
    if not _is_unicode(text):
        return "", "half a character"
    return whole_number(text) if column.names and isinstance(value, _Decimal) else (text, "")


def _is_unicode(text: str) -> bool:
    r"""Whether the text is valid Unicode: JSON may have one half of a surrogate pair, such as ``"\ud800"``."""
    try:
        return text.isascii() or bool(text.encode())
    except UnicodeEncodeError:
        return False
