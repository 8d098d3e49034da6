"""Estimates the size of input files from their size on disk and their first megabyte."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from graphmill.ingest.files import PARQUET, Source

_SAMPLE = 1 << 20


@dataclass(frozen=True)
class Size:
    """Bytes of text, unpacked, and rows."""

    text: int = 0
    rows: int = 0


def size_of(files: Iterable[str | Path]) -> Size:
    """The size of all files together."""
    sizes = [_size(file) for file in files]
    return Size(sum(size.text for size in sizes), sum(size.rows for size in sizes))


def _size(file: str | Path) -> Size:
    with Source(file, text=False) as source:
        sample, packed = source.read(_SAMPLE), source.place
    if sample.startswith(PARQUET):
        return _parquet_size(file)
    if len(sample) < _SAMPLE:
        return Size(len(sample), sample.count(b"\n") + 1)
    stored, ending = _stored(file), str(file).rpartition(".")[2].lower()
    text = int(stored * len(sample) / packed) if packed else stored * (5 if ending in ("gz", "zip") else 1)
    return Size(text, text * max(sample.count(b"\n"), 1) // len(sample))


def _parquet_size(file: str | Path) -> Size:
    if "://" in str(file):
        stored = _stored(file)
        return Size(5 * stored, stored // 10)
    try:
        about = pq.read_metadata(file)
    except (pa.ArrowException, OSError):
        return Size()  # the reader will report its error
    groups = (about.row_group(number) for number in range(about.num_row_groups))
    return Size(sum(int(group.total_byte_size) for group in groups), int(about.num_rows))


def _stored(file: str | Path) -> int:
    if "://" not in str(file):
        return Path(file).stat().st_size
    import fsspec.core

    system, inner = fsspec.core.url_to_fs(str(file))
    return int(system.size(inner) or 0)
