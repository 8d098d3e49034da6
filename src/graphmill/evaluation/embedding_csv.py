"""Reads CSV in which the vector of each row is a JSON list in one quoted field."""

import csv
import gzip
import json
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
from numpy.typing import NDArray

from graphmill.errors import InputError, listed

#: Bytes of text parsed at a time. A row must fit (a 512-dimensional one has about 6 kB).
BLOCK_BYTES = 32 * 2**20
TEXT = ("node_id", "node_name", "node_type", "embedding")
REQUIRED = ("node_id", "node_type", "embedding")


def read_csv_blocks(path: Path) -> Iterator[pa.Table]:
    """Yield tables of consecutive rows, with ``embedding`` as a fixed-size list of float32. NaN, null and Infinity are
    valid.

    Raises :class:`InputError` for a row that cannot be read; the message has its number (from 1, without the header).
    """
    names = _header(path)
    require_columns(path, names)
    columns = [name for name in ("node_index", *TEXT) if name in names]
    try:
        reader = pacsv.open_csv(
            path,
            read_options=pacsv.ReadOptions(block_size=BLOCK_BYTES),
            parse_options=pacsv.ParseOptions(newlines_in_values=True),
            convert_options=pacsv.ConvertOptions(
                column_types={"node_index": pa.int64()} | {name: pa.string() for name in TEXT},
                include_columns=columns,
                strings_can_be_null=False,
            ),
        )
    except (pa.ArrowInvalid, OSError) as error:
        raise InputError(f"{path.name} is not a readable CSV file ({_reason(error)})") from None
    row, width = 0, 0
    while True:
        try:
            batch = reader.read_next_batch()
        except StopIteration:
            return
        except (pa.ArrowInvalid, OSError) as error:
            raise InputError(f"{path.name}: a row after row {row} cannot be read ({_reason(error)})") from None
        if not batch.num_rows:
            continue
        block = pa.Table.from_batches([batch])
        for name in ("node_id", "node_type"):
            blank = pc.equal(block.column(name), "").to_numpy()
            if blank.any():
                raise InputError(f"{path.name}: {name} is blank in row {row + int(np.argmax(blank)) + 1}")
        vectors = _numbers(path, block.column("embedding").combine_chunks(), row, width)
        width = vectors.shape[1]
        lists = pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), width)
        yield block.set_column(block.column_names.index("embedding"), "embedding", lists)
        row += block.num_rows


def require_columns(path: Path, names: Sequence[str]) -> None:
    """Raises :class:`InputError` if a required column is not among ``names``."""
    if missing := [name for name in REQUIRED if name not in names]:
        raise InputError(f"{path.name} has no column {', '.join(missing)}; it has {listed(names)}")


def _header(path: Path) -> list[str]:
    opened = gzip.open if path.name.lower().endswith(".gz") else open
    try:
        with opened(path, "rt", encoding="utf-8-sig", newline="") as file:
            return next(csv.reader(file), [])
    except (OSError, EOFError, UnicodeDecodeError, csv.Error, zlib.error) as error:
        raise InputError(f"{path.name} is not a readable CSV file ({_reason(error)})") from None


def _numbers(path: Path, texts: Any, row: int, width: int) -> NDArray[np.float32]:
    """JSON lists as float32 (rows × d). ``width``: the width of earlier rows, 0 for the first block."""
    rows = []
    for number, text in enumerate(texts.to_pylist(), start=row + 1):
        where = f"{path.name}: the embedding in row {number}"
        try:
            vector = np.array([np.nan if value is None else value for value in _parsed(text)], dtype=np.float32)
        except (ValueError, TypeError, RecursionError):
            raise InputError(f"{where} is not a JSON list of numbers: {text[:60]!r}") from None
        width = width or len(vector)
        if vector.ndim != 1 or len(vector) != width or not width:
            raise InputError(f"{where} has {len(vector)} numbers, others have {width}")
        rows.append(vector)
    return np.stack(rows)


def _parsed(text: str) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:  # NaN and Infinity, which strict JSON does not have
        return json.loads(text)


def _reason(error: BaseException) -> str:
    return str(error).strip().split("\n")[0][:200]
