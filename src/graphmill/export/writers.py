"""The writers of embeddings, one per format, with one protocol. Readers never see an incomplete file."""

from __future__ import annotations

import contextlib
import csv
import glob
import os
from pathlib import Path
from typing import IO, Protocol

import numpy as np
import orjson
import psutil
import pyarrow as pa

from graphmill.parquet import parquet_writer
from graphmill.training.files import PART

COLUMNS = ("node_index", "node_id", "node_name", "node_type", "embedding")


class EmbeddingWriter(Protocol):
    """Writes consecutive rows to a file or a table."""

    def write(self, nodes: pa.Table, vectors: np.ndarray) -> None:
        """``nodes``: columns index, id, name, type of the rows; ``vectors`` float32 [rows, d]."""

    def commit(self) -> None:
        """Make the result durable and put it in its place."""

    def abort(self) -> None:
        """Remove all that was written."""


class FileWriter(EmbeddingWriter, Protocol):
    """A writer of files, which have temporary names until they are complete."""

    paths: tuple[Path, ...]


class ParquetEmbeddings:
    """Parquet: node_index int64, node_id, node_name string, node_type dictionary, embedding fixed-size list of float32."""

    def __init__(self, path: Path, dim: int) -> None:
        self.path, self.temporary = path, temporary_path(path)
        self.paths: tuple[Path, ...] = (path,)
        self.schema = pa.schema(
            [
                ("node_index", pa.int64()),
                ("node_id", pa.string()),
                ("node_name", pa.string()),
                ("node_type", pa.dictionary(pa.int32(), pa.string())),
                ("embedding", pa.list_(pa.float32(), dim)),
            ]
        )
        # Random floats do not compress: storing them plain reads and writes several times faster.
        self.writer = parquet_writer(
            self.temporary, self.schema, compression={c: "NONE" if c == "embedding" else "zstd" for c in COLUMNS},
            use_dictionary=["node_type"],
        )  # fmt: skip

    def write(self, nodes: pa.Table, vectors: np.ndarray) -> None:
        """Write the rows as a row group."""
        flat = pa.array(np.ascontiguousarray(vectors, dtype=np.float32).reshape(-1))
        columns = {
            "node_index": nodes.column("index").cast(pa.int64()),
            "node_id": nodes.column("id"),
            "node_name": nodes.column("name"),
            "node_type": nodes.column("type").cast(pa.string()).combine_chunks().dictionary_encode(),
            "embedding": pa.FixedSizeListArray.from_arrays(flat, vectors.shape[1]),
        }
        self.writer.write_table(pa.table(columns, schema=self.schema))

    def commit(self) -> None:
        """Close, sync and rename the file."""
        self.writer.close()
        put_in_place(self.temporary, self.path)

    def abort(self) -> None:
        """Remove the temporary file."""
        with contextlib.suppress(OSError):
            self.writer.close()
        self.temporary.unlink(missing_ok=True)


class CsvEmbeddings:
    """CSV with the vector as a JSON list in one quoted field."""

    def __init__(self, path: Path, dim: int) -> None:
        self.path, self.temporary = path, temporary_path(path)
        self.paths: tuple[Path, ...] = (path,)
        self.file: IO[str] = self.temporary.open("w", encoding="utf-8", newline="")
        self.rows = csv.writer(self.file, lineterminator="\n")
        self.rows.writerow(COLUMNS)

    def write(self, nodes: pa.Table, vectors: np.ndarray) -> None:
        """Write the rows as text, with float32 in the shortest form that reads back exactly."""
        vectors = np.ascontiguousarray(vectors, dtype=np.float32)
        columns = (nodes.column(name).to_pylist() for name in ("index", "id", "name", "type"))
        for row, vector in zip(zip(*columns, strict=True), vectors, strict=True):
            self.rows.writerow((*row, orjson.dumps(vector, option=orjson.OPT_SERIALIZE_NUMPY).decode()))

    def commit(self) -> None:
        """Sync, rename."""
        self.file.close()
        put_in_place(self.temporary, self.path)

    def abort(self) -> None:
        """Remove the temporary file."""
        with contextlib.suppress(OSError):
            self.file.close()
        self.temporary.unlink(missing_ok=True)


class NpyEmbeddings:
    """A float32 matrix as ``.npy``, with ``<name>.ids.txt`` beside it: one ``type<TAB>id`` per row."""

    def __init__(self, path: Path, dim: int, rows: int) -> None:
        self.path, self.temporary = path, temporary_path(path)
        self.ids_path = path.with_suffix(".ids.txt")
        self.paths: tuple[Path, ...] = (path, self.ids_path)
        self.ids_temporary = temporary_path(self.ids_path)
        self.matrix: IO[bytes] = self.temporary.open("wb")  # a mapped file ends the process when the disk is full
        header = {"descr": "<f4", "fortran_order": False, "shape": (rows, dim)}
        np.lib.format.write_array_header_1_0(self.matrix, header)
        self.ids: IO[str] = self.ids_temporary.open("w", encoding="utf-8", newline="")

    def write(self, nodes: pa.Table, vectors: np.ndarray) -> None:
        """Write the next rows."""
        self.matrix.write(np.ascontiguousarray(vectors, dtype="<f4").data)
        kinds, ids = nodes.column("type").to_pylist(), nodes.column("id").to_pylist()
        self.ids.writelines(f"{kind}\t{node}\n" for kind, node in zip(kinds, ids, strict=True))

    def commit(self) -> None:
        """Close, sync and rename both files."""
        self.matrix.close()
        self.ids.close()
        put_in_place(self.temporary, self.path)
        put_in_place(self.ids_temporary, self.ids_path)

    def abort(self) -> None:
        """Remove the temporary files."""
        for file in (self.matrix, self.ids):
            with contextlib.suppress(OSError):  # what is left in its buffer does not fit on a full disk
                file.close()
        self.temporary.unlink(missing_ok=True)
        self.ids_temporary.unlink(missing_ok=True)


def temporary_path(path: Path) -> Path:
    """Return the temporary path beside ``path`` that a file is written to first; make its folder, and remove what
    processes that have ended left for the same file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    for left in path.parent.glob(f".{glob.escape(path.name)}.*{PART}"):
        process = left.name.removesuffix(PART).rpartition(".")[2]
        if process.isdigit() and not psutil.pid_exists(int(process)):
            left.unlink(missing_ok=True)
    return path.with_name(f".{path.name}.{os.getpid()}{PART}")


def put_in_place(temporary: Path, path: Path) -> None:
    """Sync the temporary file and rename it."""
    with temporary.open("rb") as file:
        os.fsync(file.fileno())
    os.replace(temporary, path)
