"""Writes embeddings to a file whose ending names the format."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from graphmill.atomic_files import writing
from graphmill.errors import InputError
from graphmill.evaluation.embedding_files import Embeddings
from graphmill.export.writers import csv_embeddings, parquet_embeddings

ENDINGS = (".parquet", ".csv")
BLOCK = 10_000


def check_target(target: str) -> None:
    """Raise :class:`InputError` if the text is not a valid target."""
    if not target.endswith(ENDINGS):
        raise InputError(f"'{target}' is not a target: use a file ending in {' or '.join(ENDINGS)}")


def write_to(target: str, embeddings: Embeddings, root: Path | None = None) -> dict[str, Any]:
    """Write vectors with their nodes to ``target``, replacing its content atomically.

    ``root``: the folder to which a file's path is relative. Returns target and rows.

    Raises:
        InputError: no such kind of target. ResourceError: the disk is full.
    """
    check_target(target)
    rows, dim = embeddings.vectors.shape
    types = np.array(embeddings.type_names, dtype=object)[embeddings.types]
    path = root / target if root else Path(target)
    writer = csv_embeddings(path) if target.endswith(".csv") else parquet_embeddings(path, dim, rows)
    with writing(path), writer as write:
        for start in range(0, rows, BLOCK):
            part = slice(start, start + BLOCK)
            columns = {"index": embeddings.index[part], "id": embeddings.ids[part], "name": embeddings.names[part]}
            nodes = pa.table({**columns, "type": pa.array(types[part], pa.string())})
            write(nodes, np.asarray(embeddings.vectors[part], dtype=np.float32))
    return {"target": target, "rows": rows}
