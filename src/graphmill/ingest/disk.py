"""Columns of numbers that are stored in files once they are large, and functions that read them in pieces.

The files have no name, in the folder for temporary files (``TMPDIR``). They disappear with the last array that maps
them, even if the process is killed.
"""

from __future__ import annotations

import mmap
import os
import tempfile
import weakref
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

PIECE = 1 << 22
"""Rows that are looked at in one go."""
BUCKET = 1 << 23
"""Rows that are sorted in one go."""
SMALL = 1 << 25
"""A column of at most this many bytes stays in memory."""
MANY = 1 << 25
"""A stored table with at least this many rows is mapped from files instead of read into memory."""
_MAPPED: dict[int, tuple[int, weakref.ref[mmap.mmap]]] = {}
"""First address → end address of each live mapping."""


class ColumnWriter:
    """An array (n,) to which values are appended: in memory while it is small, else in a file. :meth:`finish` gives it."""

    def __init__(self, dtype: npt.DTypeLike) -> None:
        self.dtype = np.dtype(dtype)
        self._parts: list[npt.NDArray[Any]] = []
        self._file: Any = None
        self._rows = 0

    def __len__(self) -> int:
        return self._rows

    def append(self, values: npt.NDArray[Any]) -> None:
        """Append ``values``."""
        self._parts.append(np.ascontiguousarray(values, self.dtype))
        self._rows += len(values)
        if self._file is None and self._rows * self.dtype.itemsize > SMALL:
            self._file = tempfile.TemporaryFile(prefix="graphmill-")  # noqa: SIM115 - open until it is mapped
        if self._file is not None:
            for part in self._parts:
                self._file.write(part.data)
            self._parts.clear()

    def finish(self) -> npt.NDArray[Any]:
        """The array, in memory or mapped from its file. Nothing can be appended afterwards."""
        if self._file is None:
            whole = np.concatenate([np.empty(0, self.dtype), *self._parts])
            self._parts.clear()
            return whole
        self._file.flush()
        return mapped(self._file, self.dtype, self._rows)


def zeros(rows: int, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """A writable array (rows,) of zeros, in a file if it is large."""
    size = rows * np.dtype(dtype).itemsize
    if size <= SMALL:
        return np.zeros(rows, dtype)
    file = tempfile.TemporaryFile(prefix="graphmill-")  # noqa: SIM115 - the mapping keeps it
    file.truncate(size)
    if hasattr(os, "posix_fallocate"):  # report a full disk here, instead of a signal during a write
        os.posix_fallocate(file.fileno(), 0, size)
    return mapped(file, np.dtype(dtype), rows)


def mapped(file: Any, dtype: np.dtype[Any], rows: int) -> npt.NDArray[Any]:
    """Map the file as an array and close it; the mapping keeps it alive."""
    with file:
        if not rows:
            return np.empty(0, dtype)
        mapping = mmap.mmap(file.fileno(), rows * dtype.itemsize)
    array = np.frombuffer(mapping, dtype)
    first = array.__array_interface__["data"][0]
    _MAPPED[first] = first + array.nbytes, weakref.ref(mapping, lambda _: _MAPPED.pop(first, None))
    return array


def pieces(rows: int, *arrays: npt.NDArray[Any]) -> Iterator[slice]:
    """Yield slices of ``rows`` rows in order. After each, the used pages of ``arrays`` are released from memory (not
    from the file)."""
    for start in range(0, rows, PIECE):
        yield slice(start, min(start + PIECE, rows))
        let_go(*arrays)


def let_go(*arrays: npt.NDArray[Any]) -> None:
    """Release the pages of mapped arrays from this process's memory. They are read again when needed.

    Mapped arrays are recognised by their address, because an array that went through Arrow no longer has its file.
    """
    for array in arrays:
        address = array.__array_interface__["data"][0]
        for first, (end, mapping_of) in list(_MAPPED.items()):
            if first <= address < end and (mapping := mapping_of()) is not None and hasattr(mmap, "MADV_DONTNEED"):
                mapping.madvise(mmap.MADV_DONTNEED)


def as_column(values: npt.NDArray[Any], names: Sequence[str] | pa.Array | None = None) -> pa.Array:
    """The array as an Arrow column with the same memory; with ``names``, as codes of a dictionary column."""
    plain = pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), [None, pa.py_buffer(values)])
    if names is None:
        return plain
    dictionary = names if isinstance(names, pa.Array) else pa.array(names, pa.string())
    return pa.DictionaryArray.from_arrays(plain, dictionary, safe=False)


def can_be_mapped(schema: pa.Schema) -> bool:
    """Whether a table with this schema can be mapped from files: it must have only numbers and dictionaries of text."""
    kinds = [kind.index_type if pa.types.is_dictionary(kind) else kind for kind in schema.types]
    return all(pa.types.is_integer(kind) or pa.types.is_floating(kind) for kind in kinds)


def table_on_disk(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> pa.Table:
    """The rows of ``batches`` (without nulls) as a table with one chunk, mapped from files."""
    kinds = [kind.index_type if pa.types.is_dictionary(kind) else kind for kind in schema.types]
    columns = [ColumnWriter(kind.to_pandas_dtype()) for kind in kinds]
    names: list[dict[str, int]] = [{} for _ in columns]
    for batch in batches:
        for column, known, values in zip(columns, names, batch.columns, strict=True):
            if not pa.types.is_dictionary(values.type):
                column.append(values.to_numpy())
                continue
            codes = np.array(
                [known.setdefault(text, len(known)) for text in values.dictionary.to_pylist()], column.dtype
            )
            column.append(codes[values.indices.to_numpy()])
    arrays = [
        as_column(column.finish(), list(known) if pa.types.is_dictionary(kind) else None)
        for column, known, kind in zip(columns, names, schema.types, strict=True)
    ]
    return pa.Table.from_arrays(arrays, schema=schema)
