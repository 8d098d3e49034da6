"""Rotates a run's vectors onto those of the live version, because retrained vectors differ mainly by a rotation.

If scores are dot products, a rotation does not change them, and the vectors themselves are rotated. For other scores
the vectors stay, and a rotated copy is written beside them. ``runs.champion`` finds the live version.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from graphmill.evaluation.drift.procrustes import Rotation, fit_rotation
from graphmill.evaluation.embedding_files import Embeddings
from graphmill.export.writers import parquet_embeddings
from graphmill.training.contract import EmbeddingBlock
from graphmill.verified_files import listed_files

ALIGNED = "embeddings_aligned.parquet"


@dataclass(frozen=True)
class Reference:
    """The vectors to which others are aligned, and the name of their version."""

    space: str
    embeddings: Embeddings


def aligned_file(folder: Path) -> Path:
    """The file of an export (or version) with vectors in the common space: the rotated copy, or the vectors themselves."""
    return folder / ALIGNED if ALIGNED in listed_files(folder)[0] else folder


def fit_alignment(
    reference: Reference, blocks: Sequence[EmbeddingBlock], nodes: pa.Table
) -> tuple[Rotation | None, dict[str, Any]]:
    """Fit the rotation of the blocks (in row order of ``nodes``) onto the reference, on their shared nodes.

    Returns the rotation, or None, and the entry in the export's manifest: with its residual, or why there is none.
    """
    dim, known = blocks[0].vectors.shape[1], reference.embeddings
    rows = known.rows_of(nodes.column("type").to_pylist(), nodes.column("id").to_pylist())
    shared = int((rows >= 0).sum())
    about = {"to": reference.space, "shared": shared}
    if known.vectors.shape[1] != dim:
        return None, {**about, "problem": f"it has {known.vectors.shape[1]} dimensions, the live version {dim}"}
    if shared < dim:
        return None, {**about, "problem": f"{shared} shared nodes do not fix a rotation of {dim} dimensions"}

    def pairs() -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for block in blocks:
            places = rows[block.start : block.start + len(block.vectors)]
            existing = places >= 0
            yield block.vectors[existing], np.asarray(known.vectors)[places[existing]]

    rotation = fit_rotation(pairs(), dim)
    return rotation, {**about, "residual": rotation.residual}


def rotated(blocks: Iterable[EmbeddingBlock], rotation: Rotation) -> Iterator[EmbeddingBlock]:
    """Return the rotated blocks."""
    for block in blocks:
        yield EmbeddingBlock(block.start, rotation.apply(block.vectors))


def write_aligned(blocks: Iterable[EmbeddingBlock], nodes: pa.Table, dim: int, directory: Path) -> Path:
    """Write blocks to ``embeddings_aligned.parquet``, atomically; returns its path."""
    with parquet_embeddings(directory / ALIGNED, dim, nodes.num_rows) as write:
        for block in blocks:
            write(nodes.slice(block.start, len(block.vectors)), block.vectors)
    return directory / ALIGNED
