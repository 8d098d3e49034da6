"""Reads CSV in which the vector of each row is a JSON list in one quoted field."""

import csv
import gzip
import json
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
from numpy.typing import NDArray

from graphmill.errors import InputError, listed

REQUIRED = ("node_id", "node_type", "embedding")


def read_csv(path: Path) -> pa.Table:
    """The rows as a table, with ``embedding`` as a fixed-size list of float32. NaN, null and Infinity are valid.

    Raises :class:`InputError` for a row that cannot be read; the message has its number (from 1, without the header).
    """
    opened = gzip.open if path.name.lower().endswith(".gz") else open
    columns: dict[str, list[Any]] = {}
    row = 0
    try:
        with opened(path, "rt", encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file, strict=True)
            names = next(reader, [])
            require_columns(path, names)
            columns = {name: [] for name in ("node_index", "node_name", *REQUIRED) if name in names}
            places = [names.index(name) for name in columns]
            for row, cells in enumerate(reader, start=1):
                if len(cells) != len(names):
                    raise InputError(f"{path.name}: row {row} has {len(cells)} cells, the header has {len(names)}")
                for (name, values), place in zip(columns.items(), places, strict=True):
                    values.append(_value(f"{path.name}: {name}", cells[place], name, row))
                if len(columns["embedding"][-1]) != len(columns["embedding"][0]) or not columns["embedding"][0].size:
                    have, others = len(columns["embedding"][-1]), len(columns["embedding"][0])
                    raise InputError(
                        f"{path.name}: the embedding in row {row} has {have} numbers, others have {others}"
                    )
    except (OSError, EOFError, UnicodeDecodeError, csv.Error, zlib.error) as error:
        reason = str(error).strip().split("\n")[0][:200]
        raise InputError(f"{path.name} is not a readable CSV file (after row {row}: {reason})") from None
    if not row:
        raise InputError(f"{path.name} holds no rows")
    vectors = np.stack(columns["embedding"])
    lists = pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), vectors.shape[1])
    return pa.table({**columns, "embedding": lists})


def require_columns(path: Path, names: Sequence[str]) -> None:
    """Raises :class:`InputError` if a required column is not among ``names``."""
    if missing := [name for name in REQUIRED if name not in names]:
        raise InputError(f"{path.name} has no column {', '.join(missing)}; it has {listed(names)}")


def _value(where: str, text: str, name: str, row: int) -> Any:
    """A cell: a vector (float32), a whole number, or a text that is not blank where it is required."""
    if name == "embedding":
        return _vector(f"{where} in row {row}", text)
    if name == "node_index":
        try:
            return int(text)
        except ValueError:
            raise InputError(f"{where} in row {row} must be a whole number, it is {text[:60]!r}") from None
    if name in REQUIRED and not text:
        raise InputError(f"{where} is blank in row {row}")
    return text


def _vector(where: str, text: str) -> NDArray[np.float32]:
    try:
        try:
            values = orjson.loads(text)
        except orjson.JSONDecodeError:  # NaN and Infinity, which strict JSON does not have
            values = json.loads(text)
        vector = np.array([np.nan if value is None else value for value in values], dtype=np.float32)
    except (ValueError, TypeError, RecursionError):
        raise InputError(f"{where} is not a JSON list of numbers: {text[:60]!r}") from None
    if vector.ndim != 1:
        raise InputError(f"{where} is not a JSON list of numbers: {text[:60]!r}")
    return vector
