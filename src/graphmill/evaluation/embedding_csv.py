"""Reads CSV in which the vector of each row is a JSON list in one quoted field.

The lists of a block are turned into a numeric CSV (brackets become line ends), which Arrow parses as fast as a plain
table. Only if this fails is the block read row by row, to find the wrong row.
"""

import csv
import gzip
import json
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
from numpy.typing import NDArray

from graphmill.errors import InputError, listed

#: Bytes of text parsed at a time. A row must fit (a 512-dimensional one has about 6 kB).
BLOCK_BYTES = 32 * 2**20
NUMBERS_BLOCK = 8 * 2**20
TEXT = ("node_id", "node_name", "node_type", "embedding")
REQUIRED = ("node_id", "node_type", "embedding")
_BREAK_AT_BRACKET = bytes.maketrans(b"]", b"\n")


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
    joined = _joined(texts)
    if joined is not None:
        width = width or joined[: joined.find(b"\n")].count(b",") + 1
        try:
            table = pacsv.read_csv(
                pa.BufferReader(joined),
                read_options=pacsv.ReadOptions(
                    column_names=[str(i) for i in range(width)], block_size=NUMBERS_BLOCK, use_threads=False
                ),
                convert_options=pacsv.ConvertOptions(
                    column_types={str(i): pa.float32() for i in range(width)}, null_values=["NaN", "nan", "null"]
                ),
            )
            if table.num_rows == len(texts):
                return np.ascontiguousarray(np.array([column.to_numpy() for column in table.columns]).T)
        except pa.ArrowInvalid:
            pass  # the wrong row is found below
    return _one_by_one(path, texts, row, width)


def _joined(texts: Any) -> bytes | None:
    """All lists as lines of a CSV without brackets and blanks, or None if a text is not one flat list."""
    trimmed = pc.utf8_trim_whitespace(texts)
    flat = pc.and_(pc.starts_with(trimmed, "["), pc.ends_with(trimmed, "]"))
    if not pc.all(flat).as_py():
        return None
    offsets = np.frombuffer(trimmed.buffers()[1], dtype=np.int32)[trimmed.offset : trimmed.offset + len(trimmed) + 1]
    data = memoryview(trimmed.buffers()[2])[offsets[0] : offsets[-1]].tobytes()
    if data.count(b"[") != len(trimmed) or data.count(b"]") != len(trimmed) or b'"' in data:
        return None
    return data.translate(_BREAK_AT_BRACKET, delete=b"[ \t\r\n")


def _one_by_one(path: Path, texts: Any, row: int, width: int) -> NDArray[np.float32]:
    """Read a block row by row after the fast way has failed: report the wrong row, or read an unusual but valid one."""
    rows = []
    for number, text in enumerate(texts.to_pylist(), start=row + 1):
        where = f"{path.name}: the embedding in row {number}"
        try:
            values = json.loads(text)
            vector = np.array([np.nan if value is None else value for value in values], dtype=np.float32)
        except (ValueError, TypeError, RecursionError):
            raise InputError(f"{where} is not a JSON list of numbers: {text[:60]!r}") from None
        width = width or len(vector)
        if vector.ndim != 1 or len(vector) != width or not width:
            raise InputError(f"{where} has {len(vector)} numbers, others have {width}")
        rows.append(vector)
    return np.stack(rows)


def _reason(error: BaseException) -> str:
    return str(error).strip().split("\n")[0][:200]
