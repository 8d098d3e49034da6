"""Which engine makes tables of files: in memory, or out of core where they would not fit."""

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
"""Bytes of memory for a row, and for a byte of its text (ids and names of nodes), at the in-memory reader's peak."""
_ON_DISK = 1.5
"""Bytes of temporary files for a byte of text, beside 32 for a row."""
_SHARE = 0.7
"""The part of the free memory that a file may take in memory."""
_DOUBT = 1.25
"""How far above the free memory an estimate must be before a file is refused."""


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
    """What files take: their text in bytes, rows, memory of the in-memory reader, and disk of the other one."""

    text: int = 0
    rows: int = 0

    @property
    def memory(self) -> int:
        """Bytes at the peak of the in-memory reader."""
        return int(_A_ROW * self.rows + _OF_TEXT * self.text)

    @property
    def disk(self) -> int:
        """Bytes of temporary files of the reader out of core."""
        return int(32 * self.rows + _ON_DISK * self.text)


def need_of(files: Iterable[str | Path]) -> Need:
    """What the files take, by their size and their first megabyte."""
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
        return Need()  # the reader says what is wrong with it
    groups = (about.row_group(number) for number in range(about.num_row_groups))
    return Need(sum(int(group.total_byte_size) for group in groups), int(about.num_rows))


def _size(file: str | Path) -> int:
    if "://" not in str(file):
        return Path(file).stat().st_size
    import fsspec.core

    system, inner = fsspec.core.url_to_fs(str(file))
    return int(system.size(inner) or 0)


def fits_in_memory(wanted: int, free: int) -> bool:
    """Whether so many bytes are taken in memory where so many are free."""
    return wanted <= _SHARE * free


def choose(engine: Engine, files: Iterable[str | Path]) -> bool:
    """Whether the files are read out of core.

    Raises:
        SettingsError: ``duckdb`` is asked for and not installed.
        ResourceError: nothing comes near the free memory and DuckDB is not installed, or the disk has too little room.
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
                'pip install "graphmill[duckdb]" reads it out of core (engine: memory tries all the same)'
            )
    if need.disk > (room := free_disk()):
        raise ResourceError(
            f"reading out of core takes about {format_size(need.disk)} of temporary files, and {tempfile.gettempdir()} has "
            f"{format_size(room)} free; set TMPDIR to a folder with more room"
        )
    return True
