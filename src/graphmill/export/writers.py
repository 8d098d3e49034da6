"""The writers of embeddings, one per format, and a file whose ending names it. Readers never see an incomplete file."""

from __future__ import annotations

import contextlib
import csv
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pyarrow as pa

from graphmill.atomic_files import replacing, writing
from graphmill.errors import InputError
from graphmill.evaluation.embedding_files import Embeddings
from graphmill.parquet import parquet_writer

COLUMNS = ("node_index", "node_id", "node_name", "node_type", "embedding")
ENDINGS = (".parquet", ".csv")
BLOCK = 10_000
Write = Callable[[pa.Table, np.ndarray], None]
"""Writes consecutive rows: ``nodes`` with the columns index, id, name and type, and ``vectors`` float32 [rows, d]."""


@contextlib.contextmanager
def parquet_embeddings(path: Path, dim: int, rows: int) -> Iterator[Write]:
    """Parquet: node_index int64, node_id, node_name string, node_type dictionary, embedding fixed-size list of float32.

    The file takes its name at the end of the block, and is removed at an exception.
    """
    types = pa.int64(), pa.string(), pa.string(), pa.dictionary(pa.int32(), pa.string()), pa.list_(pa.float32(), dim)
    schema = pa.schema(list(zip(COLUMNS, types, strict=True)))
    # Random floats do not compress: storing them plain reads and writes several times faster.
    compression = {name: "NONE" if name == "embedding" else "zstd" for name in COLUMNS}
    with replacing(path, 4 * rows * dim) as part:
        writer = parquet_writer(part.file, schema, compression=compression, use_dictionary=["node_type"])

        def write(nodes: pa.Table, vectors: np.ndarray) -> None:
            flat = pa.array(np.ascontiguousarray(vectors, dtype=np.float32).reshape(-1))
            columns = {
                "node_index": nodes.column("index").cast(pa.int64()),
                "node_id": nodes.column("id"),
                "node_name": nodes.column("name"),
                "node_type": nodes.column("type").cast(pa.string()).combine_chunks().dictionary_encode(),
                "embedding": pa.FixedSizeListArray.from_arrays(flat, vectors.shape[1]),
            }
            writer.write_table(pa.table(columns, schema=schema))

        try:
            yield write
        except BaseException:
            with contextlib.suppress(OSError, ValueError):
                writer.close()
            raise
        writer.close()


@contextlib.contextmanager
def csv_embeddings(path: Path) -> Iterator[Write]:
    """CSV with the vector as a JSON list in one quoted field, as :func:`parquet_embeddings`."""
    with replacing(path) as part, part.text() as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(COLUMNS)

        def write(nodes: pa.Table, vectors: np.ndarray) -> None:
            """With float32 in the shortest form that reads back exactly."""
            vectors = np.ascontiguousarray(vectors, dtype=np.float32)
            columns = (nodes.column(name).to_pylist() for name in ("index", "id", "name", "type"))
            for row, vector in zip(zip(*columns, strict=True), vectors, strict=True):
                rows.writerow((*row, orjson.dumps(vector, option=orjson.OPT_SERIALIZE_NUMPY).decode()))

        yield write


def check_target(target: str) -> None:
    """Raise :class:`InputError` if the text is not a valid target."""
    if not target.endswith(ENDINGS):
        raise InputError(f"'{target}' is not a target: use a file ending in {' or '.join(ENDINGS)}")


def write_to(target: str, embeddings: Embeddings) -> dict[str, Any]:
    """Write vectors with their nodes to ``target``, replacing its content atomically.

    Returns target and rows.

    Raises:
        InputError: no such kind of target. ResourceError: the disk is full.
    """
    check_target(target)
    rows, dim = embeddings.vectors.shape
    types = np.array(embeddings.type_names, dtype=object)[embeddings.types]
    path = Path(target)
    writer = csv_embeddings(path) if target.endswith(".csv") else parquet_embeddings(path, dim, rows)
    with writing(path), writer as write:
        for start in range(0, rows, BLOCK):
            part = slice(start, start + BLOCK)
            columns = {"index": embeddings.index[part], "id": embeddings.ids[part], "name": embeddings.names[part]}
            nodes = pa.table({**columns, "type": pa.array(types[part], pa.string())})
            write(nodes, np.asarray(embeddings.vectors[part], dtype=np.float32))
    return {"target": target, "rows": rows}
