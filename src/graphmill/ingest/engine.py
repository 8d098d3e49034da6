"""Chooses the engine that reads files: in memory, or out of core if they would not fit."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq

from graphmill.errors import ResourceError, require
from graphmill.ingest.disk import free_disk
from graphmill.ingest.files import PARQUET, Source
from graphmill.memory import available_memory, format_size
from graphmill.settings import setting

Engine = Literal["auto", "memory", "duckdb"]

_SAMPLE = 1 << 20
_A_ROW, _OF_TEXT = 80, 0.5
"""Peak bytes of memory of the in-memory reader, per row and per byte of its text (ids and names of nodes)."""
_ON_DISK = 1.5
"""Bytes of temporary files per byte of text, in addition to 32 per row."""
_SHARE = 0.7
"""The fraction of the free memory that reading in memory may use."""
_DOUBT = 1.25
"""A file is refused if its estimate exceeds the free memory by more than this factor."""


def engine_setting() -> Any:
    """The field ``engine`` of a format's settings."""
    return setting(
        "auto",
        'memory: in memory; duckdb: out of core, in about 2 GB, for larger files (pip install "graphmill[duckdb]"); auto: '
        "by the files' size and the free memory. The tables are the same",
        identity=False,
    )


@dataclass(frozen=True)
class Need:
    """The needs of files: bytes of text, rows, memory of the in-memory reader, and disk space of the other one."""

    text: int = 0
    rows: int = 0

    @property
    def memory(self) -> int:
        """Peak bytes of the in-memory reader."""
        return int(_A_ROW * self.rows + _OF_TEXT * self.text)

    @property
    def disk(self) -> int:
        """Bytes of temporary files of the out-of-core reader."""
        return int(32 * self.rows + _ON_DISK * self.text)


def need_of(files: Iterable[str | Path]) -> Need:
    """Estimate the needs of the files from their size and their first megabyte."""
    found = [_need(file) for file in files]
    return Need(sum(n.text for n in found), sum(n.rows for n in found))


def _need(file: str | Path) -> Need:
    with Source(file, text=False) as source:
        sample, packed = source.read(_SAMPLE), source.place
    if sample.startswith(PARQUET):
        return _parquet_need(file)
    if len(sample) < _SAMPLE:
        return Need(len(sample), sample.count(b"\n") + 1)
    size, ending = _size(file), str(file).rpartition(".")[2].lower()
    text = int(size * len(sample) / packed) if packed else size * (5 if ending in ("gz", "zip") else 1)
    return Need(text, text * max(sample.count(b"\n"), 1) // len(sample))


def _parquet_need(file: str | Path) -> Need:
    if "://" in str(file):
        size = _size(file)
        return Need(5 * size, size // 10)
    try:
        about = pq.read_metadata(file)
    except (pa.ArrowException, OSError):
        return Need()  # the reader will report its error
    groups = (about.row_group(number) for number in range(about.num_row_groups))
    return Need(sum(int(group.total_byte_size) for group in groups), int(about.num_rows))


def _size(file: str | Path) -> int:
    if "://" not in str(file):
        return Path(file).stat().st_size
    import fsspec.core

    system, inner = fsspec.core.url_to_fs(str(file))
    return int(system.size(inner) or 0)


def fits_in_memory(wanted: int, free: int) -> bool:
    """Whether reading in memory is allowed for this need and this free memory, in bytes."""
    return wanted <= _SHARE * free


def choose(engine: Engine, files: Iterable[str | Path]) -> bool:
    """Decide whether the files are read out of core.

    Raises:
        SettingsError: ``duckdb`` was requested and is not installed.
        ResourceError: the files need far more than the free memory and DuckDB is not installed, or the disk has too
            little room.
    """
    if engine == "memory":
        return False
    if engine == "duckdb":
        require("duckdb", "duckdb", "duckdb")
    need, free = need_of(files), available_memory()
    if engine == "auto":
        if fits_in_memory(need.memory, free):
            return False
        if find_spec("duckdb") is None:
            if need.memory <= _DOUBT * free:
                return False
            raise ResourceError(
                f"reading takes about {format_size(need.memory)} of memory, and {format_size(free)} is free: "
                'pip install "graphmill[duckdb]" reads it out of core (engine: memory tries it anyway)'
            )
    if need.disk > (room := free_disk()):
        raise ResourceError(
            f"reading out of core takes about {format_size(need.disk)} of temporary files, and {tempfile.gettempdir()} has "
            f"{format_size(room)} free; set TMPDIR to a folder with more room"
        )
    return True
