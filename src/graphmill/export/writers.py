"""The writers of embeddings, one per format, with one protocol. Readers never see an incomplete file."""

from __future__ import annotations

import contextlib
import csv
from contextlib import ExitStack
from pathlib import Path
from typing import Protocol

import numpy as np
import orjson
import pyarrow as pa

from graphmill.atomic_files import PartFile
from graphmill.parquet import parquet_writer

COLUMNS = ("node_index", "node_id", "node_name", "node_type", "embedding")


class EmbeddingWriter(Protocol):
    """Writes consecutive rows to files (``paths``), which have temporary names until they are complete."""

    paths: tuple[Path, ...]

    def write(self, nodes: pa.Table, vectors: np.ndarray) -> None:
        """``nodes``: columns index, id, name, type of the rows; ``vectors`` float32 [rows, d]."""

    def commit(self) -> None:
        """Make the files durable and give them their names."""

    def abort(self) -> None:
        """Remove all that was written."""


class ParquetEmbeddings:
    """Parquet: node_index int64, node_id, node_name string, node_type dictionary, embedding fixed-size list of float32."""

    def __init__(self, path: Path, dim: int, rows: int) -> None:
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
        self.part = PartFile(path, 4 * rows * dim)
        # Random floats do not compress: storing them plain reads and writes several times faster.
        self.writer = parquet_writer(
            self.part.file, self.schema, compression={c: "NONE" if c == "embedding" else "zstd" for c in COLUMNS},
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
        self.part.commit()

    def abort(self) -> None:
        """Remove the temporary file."""
        with contextlib.suppress(OSError, ValueError):
            self.writer.close()
        self.part.abort()


class CsvEmbeddings:
    """CSV with the vector as a JSON list in one quoted field."""

    def __init__(self, path: Path) -> None:
        self.paths: tuple[Path, ...] = (path,)
        self.part = PartFile(path)
        self.text = ExitStack()
        self.rows = csv.writer(self.text.enter_context(self.part.text()), lineterminator="\n")
        self.rows.writerow(COLUMNS)

    def write(self, nodes: pa.Table, vectors: np.ndarray) -> None:
        """Write the rows as text, with float32 in the shortest form that reads back exactly."""
        vectors = np.ascontiguousarray(vectors, dtype=np.float32)
        columns = (nodes.column(name).to_pylist() for name in ("index", "id", "name", "type"))
        for row, vector in zip(zip(*columns, strict=True), vectors, strict=True):
            self.rows.writerow((*row, orjson.dumps(vector, option=orjson.OPT_SERIALIZE_NUMPY).decode()))

    def commit(self) -> None:
        """Sync, rename."""
        self.text.close()
        self.part.commit()

    def abort(self) -> None:
        """Remove the temporary file."""
        with contextlib.suppress(OSError):
            self.text.close()
        self.part.abort()
