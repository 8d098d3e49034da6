"""Compares the neighbourhoods of a query and of a candidate's known neighbours, by sparse products in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import numpy as np
import scipy.sparse as sp

BLOCK_BYTES = 64 * 2**20
"""Memory for one sparse product."""
_BYTES_PER_ENTRY = 12

Side = Literal["both", "source", "target"]


def similar(
    sources: sp.csr_matrix, theirs: sp.csr_matrix, links: sp.csr_matrix, heads: np.ndarray, side: Side = "both"
) -> dict[Side, np.ndarray]:
    """Scores of all targets, float32 [B, targets], by "source", by "target", or by both, as ``side`` says.

    "source": the sum of the similarities of the candidate's known sources to the head. "target": the sum of the
    similarities of the head's known targets to the candidate. ``sources`` and ``theirs``: the vectors of sources and
    targets; their dot products are the similarities. ``links`` float32 [sources, targets]: 1 for a known link.
    ``heads``: rows of ``sources``.
    """
    scores: dict[Side, np.ndarray] = {}
    turned = {"source": sources.T.tocsr(), "target": theirs.T.tocsr()}
    for name in ("source", "target") if side == "both" else (side,):
        out = np.zeros((len(heads), theirs.shape[0]), np.float32)
        for part in blocks(len(heads), max(sources.shape[0], theirs.shape[0])):
            mine = heads[part]
            if name == "source":
                out[part] = ((sources[mine] @ turned["source"]) @ links).toarray()
            else:
                out[part] = ((links[mine] @ theirs) @ turned["target"]).toarray()
        scores[name] = out
    return scores


def blocks(rows: int, columns: int) -> Iterator[slice]:
    """Slices of rows, small enough that a sparse product with ``columns`` columns stays within :data:`BLOCK_BYTES`."""
    size = max(1, BLOCK_BYTES // (_BYTES_PER_ENTRY * max(columns, 1)))
    for start in range(0, rows, size):
        yield slice(start, min(start + size, rows))
