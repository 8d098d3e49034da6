"""Reads text columns of a small table that is keyed by node ids: labels, aliases, groups."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from graphmill.errors import InputError, listed
from graphmill.ingest.cells import Column
from graphmill.ingest.files import path_text
from graphmill.ingest.row_files import RowFile

_IDS = ("id", "node_id")


def text_columns(path: str | Path, names: Sequence[str], purpose: str, optional: Sequence[str] = ()) -> pa.Table:
    """Columns of a file as text, in this order. ``purpose``: "Groups are", for messages. ``optional``: those that may have
    blank cells.

    Raises :class:`InputError` for a missing column, a row without one of the texts, and a file without rows.
    """
    with RowFile(path, wanted=list(names)) as file:
        if missing := [name for name in names if name not in file.names]:
            raise InputError(
                f"{file.name} has no column {' and '.join(map(repr, missing))}; it has {listed(file.names)}. {purpose} "
                f"read from the columns {' and '.join(names)}"
            )
        return text_rows(file, names, [name for name in names if name not in optional])[0]


def text_rows(file: RowFile, names: Sequence[str], required: Sequence[str]) -> tuple[pa.Table, np.ndarray]:
    """Columns of an open file as text, in this order, and the line of each row (int64). ``required``: the ids among them.

    Raises :class:`InputError` for a row without one of the ``required`` texts, and for a file without rows.
    """
    parts = []
    columns = [Column(name, required=name in required, names=name in required) for name in names]
    for part, rejects in file.blocks(columns, lambda block: (block.table.select(list(names)), block.lines)):
        if rejects:
            raise InputError(f"{file.name}, {rejects[0].place}")
        parts.append(part)
    if not sum(table.num_rows for table, _ in parts):
        raise InputError(f"{file.name} has no row below its header")
    return pa.concat_tables([table for table, _ in parts]).combine_chunks(), np.concatenate([n for _, n in parts])


def text_mapping(path: str | Path, key: str, value: str, purpose: str) -> dict[str, str]:
    """``key`` → ``value`` of the rows of a file; ``purpose`` as of :func:`text_columns`.

    Raises :class:`InputError` as that does, and for a key with two values.
    """
    values: dict[str, str] = {}
    for row in text_columns(path, (key, value), purpose).to_pylist():
        if (known := values.setdefault(row[key], row[value])) != row[value]:
            raise InputError(
                f"{path_text(path)}: {key} {row[key]!r} has the {value} {known!r} and the {value} {row[value]!r}; keep one"
            )
    return values


def numbered_texts(
    file: RowFile, text: str, number: str, remedy: str, *, blanks: bool = False
) -> tuple[list[str], np.ndarray, np.ndarray]:
    """Texts, their numbers (int64) and their lines, from two columns of an open file.

    Raises :class:`InputError` for a row without one of them (``blanks``: without a number), and for a number that occurs
    twice.
    """
    texts, numbers, lines = list[str](), [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    columns = [Column(text, required=not blanks), Column(number, "whole", required=True)]
    for block, rejects in file.blocks(columns, lambda block: block):
        for reject in sorted(rejects)[:1]:
            raise InputError(f"{file.name}, {reject.place} ({reject.value!r}); {remedy}")
        texts += [each.strip() for each in block.table[text].to_pylist()]
        numbers.append(block.table[number].to_numpy())
        lines.append(block.lines)
    places = np.concatenate(lines)
    require_once(np.concatenate(numbers).tolist(), places, file.name, f"{number} {{}}")
    return texts, np.concatenate(numbers), places


def require_once(values: Sequence[Any], lines: np.ndarray, file: str, what: str) -> None:
    """Raise :class:`InputError` for a value that occurs twice. ``what``: how a value is called, with {} in its place."""
    line_of: dict[Any, int] = {}
    for value, line in zip(values, lines.tolist(), strict=True):
        if line_of.setdefault(value, line) != line:
            raise InputError(
                f"{file}, line {line}: {what.format(value)} is on line {line_of[value]}, too; name each once"
            )


def label_columns(path: str | Path, key: str, column: str) -> tuple[str, str]:
    """The columns of the id and of the label. Raises :class:`InputError` if it is not clear which they are."""
    with RowFile(path, wanted=[name for name in (key, column) if name]) as file:
        names, file_name = list(file.names), file.name
    key = key or next((name for name in _IDS if name in names), names[0] if names else "")
    others = [name for name in names if name not in (key, "")]
    if not column and len(others) != 1:
        raise InputError(
            f"{file_name}: which column has the label? It has {listed(others)}; name one as column, or "
            "leave the others out of the table"
        )
    return key, column or others[0]
