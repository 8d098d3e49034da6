"""Reads CSV in which the vector of each row is a JSON list in one quoted field."""

import json
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import orjson
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from graphmill.errors import InputError, listed

REQUIRED = ("node_id", "node_type", "embedding")
_TEXTS = dict.fromkeys((*REQUIRED, "node_name"), str)


def read_csv(path: Path) -> pa.Table:
    """The rows as a table, with ``embedding`` as lists of float32. NaN, null and Infinity are valid; blanks are null.

    Raises :class:`InputError` for a row that cannot be read; the message has its number (from 1, without the header).
    """
    try:
        frame = pd.read_csv(path, dtype=_TEXTS, encoding="utf-8-sig", keep_default_na=False, na_values=[""])
    except pd.errors.EmptyDataError:
        raise InputError(f"{path.name} holds no rows") from None
    except (OSError, EOFError, ValueError, zlib.error) as error:
        reason = str(error).strip().split("\n")[0][:200]
        raise InputError(f"{path.name} is not a readable CSV file ({reason})") from None
    if not isinstance(frame.index, pd.RangeIndex):  # pandas then takes the first column for names of rows
        raise InputError(f"{path.name}: its rows have more cells than its header")
    require_columns(path, list(frame.columns))
    texts = frame.pop("embedding")
    vectors = [
        None if pd.isna(text) else _vector(f"{path.name}: embedding in row {row}", text)
        for row, text in enumerate(texts, 1)
    ]
    kept = [name for name in ("node_index", "node_id", "node_name", "node_type") if name in frame.columns]
    try:
        table = pa.Table.from_pandas(frame[kept], preserve_index=False)
    except (OverflowError, pa.ArrowException):
        raise InputError(f"{path.name}: node_index must be whole numbers of at most 64 bits") from None
    return table.append_column("embedding", pa.array(vectors, pa.list_(pa.float32())))


def require_columns(path: Path, names: Sequence[str]) -> None:
    """Raises :class:`InputError` if a required column is not among ``names``."""
    if missing := [name for name in REQUIRED if name not in names]:
        raise InputError(f"{path.name} has no column {', '.join(missing)}; it has {listed(names)}")


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
