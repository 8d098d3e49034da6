"""Writes a model's embeddings in all requested formats in one pass, and the manifest last.

If there is a manifest, the files are complete. A killed export leaves no manifest.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from graphmill.arrays import save_safetensors
from graphmill.atomic_files import only_writer
from graphmill.errors import TrainingError
from graphmill.export.manifests import EXPORT_FORMAT, write_manifest
from graphmill.export.writers import Write, csv_embeddings, parquet_embeddings
from graphmill.verified_files import MANIFEST

if TYPE_CHECKING:
    from graphmill.training.contract import EmbeddingBlock
    from graphmill.training.settings import ExportSettings

SCORING = "relations.safetensors"
"""The file with the relations' parameters and training edges, from which links can be scored with the exported vectors."""


def export_embeddings(
    blocks: Iterable[EmbeddingBlock],
    nodes: pa.Table,
    dim: int,
    directory: Path,
    formats: ExportSettings,
    about: dict[str, Any],
    further: Mapping[str, Mapping[str, np.ndarray]] | None = None,
) -> dict[str, Any]:
    """Stream ``blocks`` (in row order) with the node table into ``directory``; returns the manifest.

    ``further``: arrays by name for each further file, written as safetensors. ``about`` (fingerprint, settings, data
    hashes, versions) is copied into the manifest.

    Raises:
        TrainingError: a vector is not finite, or the rows do not match the node table. No files are left.
        ResourceError: the disk is full or read-only.
    """
    extra = further or {}
    with only_writer(directory):
        (directory / MANIFEST).unlink(missing_ok=True)
        names = ["embeddings.parquet", *(["embeddings.csv"] if formats.csv else []), *extra]
        with ExitStack() as files:
            parquet = parquet_embeddings(directory / names[0], dim, nodes.num_rows)
            writers = [files.enter_context(parquet)]
            if formats.csv:
                writers.append(files.enter_context(csv_embeddings(directory / names[1])))
            rows = _stream(blocks, nodes, writers)
            if rows != nodes.num_rows:
                raise TrainingError(f"{rows} embeddings for {nodes.num_rows} nodes; the run and the graph do not match")
            # Files of an earlier export would belong to another model.
            (directory / SCORING).unlink(missing_ok=True)
            for name, arrays in extra.items():
                contiguous = {key: np.ascontiguousarray(array) for key, array in arrays.items()}
                save_safetensors(directory / name, contiguous, "numpy")
        return write_manifest(directory, EXPORT_FORMAT, (rows, dim), names, about)


def _stream(blocks: Iterable[EmbeddingBlock], nodes: pa.Table, writers: Sequence[Write]) -> int:
    expected = 0
    for block in blocks:
        if block.start != expected:
            raise TrainingError(f"embedding rows are out of order: row {block.start} came where {expected} was due")
        if not np.isfinite(block.vectors).all():
            bad = int(np.flatnonzero(~np.isfinite(block.vectors).all(axis=1))[0]) + block.start
            raise TrainingError(
                f"the embedding of node row {bad} is not finite; train again with acceleration.precision: "
                "fp32 or a lower learning rate"
            )
        rows = nodes.slice(block.start, len(block.vectors))
        for write in writers:
            write(rows, block.vectors)
        expected += len(block.vectors)
    return expected
