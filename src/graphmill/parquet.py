"""Parquet files with checksums of their pages: always written, and verified if a file has them.

It does not import torch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from os import PathLike
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from graphmill.errors import InputError, one_line


class ParquetTable:
    """An open Parquet file that reports damage in one sentence (:class:`InputError`): broken pages, and text that is
    not UTF-8.

    ``source``: a path, or an open file or buffer; ``name``: its name in messages. ``mapped``: plain pages of a local
    file are memory-mapped, without a copy. ``remedy``: what to do about a damaged file.
    """

    def __init__(
        self, source: Any, name: str | PathLike[str] = "", *, mapped: bool = False, remedy: str = "write it again"
    ) -> None:
        self._name, self._remedy = str(name or source), remedy
        with self._readable("is not a readable Parquet file"):
            self._file = pq.ParquetFile(source, memory_map=mapped, page_checksum_verification=True)
            self.schema: pa.Schema = self._file.schema_arrow
            self.names: tuple[str, ...] = tuple(self.schema.names)
        self._source = source
        self.rows: int = self._file.metadata.num_rows
        self.groups: int = self._file.num_row_groups

    @property
    def values(self) -> int:
        """Number of values in all columns; a row's list has several."""
        about = self._file.metadata
        groups = (about.row_group(number) for number in range(self.groups))
        return sum(group.column(column).num_values for group in groups for column in range(group.num_columns))

    def longest_text(self, columns: Sequence[str]) -> int:
        """Bytes of a text of ``columns``, as a bound for a block of rows: the longest in a dictionary, which a small file
        can repeat in each row, or the mean of a column that has none."""
        texts = [name for name in columns if name in self.names and _is_text(self.schema.field(name).type)]
        about, longest = self._file.metadata, 0
        places = [place for place in range(about.num_columns) if about.schema.column(place).path in texts]
        with self._readable():
            file = pq.ParquetFile(self._source, read_dictionary=texts) if texts else self._file
            for number in range(self.groups if texts else 0):
                for place in places:
                    chunk = about.row_group(number).column(place)
                    longest = max(longest, chunk.total_uncompressed_size // max(chunk.num_values, 1))
                first = next(file.iter_batches(1, row_groups=[number], columns=texts), None)
                for column in first.columns if first is not None else ():
                    values = column.dictionary if pa.types.is_dictionary(column.type) else column
                    longest = max(longest, pc.max(pc.binary_length(values)).as_py() or 0)
        return longest

    def require(self, schema: pa.Schema) -> None:
        """Raise :class:`InputError` unless the file has these columns, of these types."""
        for field in schema:
            if field.name not in self.names or self.schema.field(field.name).type != field.type:
                raise InputError(f"{self._name} has no column {field.name} of {field.type}; {self._remedy}")

    def read(self, columns: Sequence[str] | None = None) -> pa.Table:
        """The whole table, or only the given columns."""
        with self._readable():
            return _whole(self._file.read(columns))

    def group(self, number: int, columns: Sequence[str] | None = None) -> pa.Table:
        """Row group ``number``, 0 ≤ ``number`` < ``groups``."""
        with self._readable():
            return _whole(self._file.read_row_group(number, columns))

    def batches(self, rows: int, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """The table in batches of at most ``rows`` rows."""
        with self._readable():
            parts = self._file.iter_batches(rows, columns=columns)
        while True:
            with self._readable():
                part = next(parts, None)
                if part is None:
                    return
                part = _whole(part)
            yield part

    @contextmanager
    def _readable(self, fault: str = "is damaged") -> Iterator[None]:
        try:
            yield
        except (pa.ArrowException, OSError, ValueError) as error:
            raise InputError(f"{self._name} {fault} ({one_line(error)}); {self._remedy}") from None


def write_parquet(table: pa.Table, where: Any, **options: Any) -> None:
    """Writes ``table`` to a path or an open file; ``options``: those of :func:`pyarrow.parquet.write_table`."""
    pq.write_table(table, where, write_page_checksum=True, **options)


def parquet_writer(where: Any, schema: pa.Schema, **options: Any) -> pq.ParquetWriter:
    """A writer of row groups; ``options``: those of :class:`pyarrow.parquet.ParquetWriter`."""
    return pq.ParquetWriter(where, schema, write_page_checksum=True, **options)


def _is_text(kind: pa.DataType) -> bool:
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return pa.types.is_string(kind) or pa.types.is_large_string(kind)


def _whole(read: Any) -> Any:
    read.validate(full=True)  # pyarrow does not check text in a page, and fails later
    return read
