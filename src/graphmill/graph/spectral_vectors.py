"""Spectral vectors with a basis that is kept: of its own nodes, of these without some pairs, and of new nodes."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import numpy as np
import scipy.sparse as sp

from graphmill.graph.spectral import Neighbourhoods, factors, scaled

SHORTENING = 0.3
"""In :func:`shortened`."""
_ALMOST_ZERO = 1e-4
"""Share of the largest singular value below which a direction is rounding error."""


class SpectralVectors:
    """A node's vector is the sum of its neighbours' columns (right singular vectors), short for a small neighbourhood.

    ``left`` float32 [nodes, width]: left singular vectors times ``values`` [width], of the scaled matrix of ``entries``.
    """

    def __init__(self, entries: Neighbourhoods, left: np.ndarray, values: np.ndarray) -> None:
        self.entries, self.left, self.values = entries, left, values
        self.columns = _columns(scaled(entries.matrix), left, values)

    @classmethod
    def of(
        cls, entries: Neighbourhoods, width: int, seed: int, poll: Callable[[], None] = lambda: None
    ) -> SpectralVectors:
        """Those of a graph's neighbourhoods. ``poll``: as in :func:`graphmill.graph.spectral.factors`."""
        return cls(entries, *factors(scaled(entries.matrix), width, seed, poll))

    def all(self, without: np.ndarray | None = None) -> np.ndarray:
        """float32 [nodes, width], shorter than 1 (0 without a neighbour). ``without`` bool [pairs]: pairs to leave out; the
        basis stays the same."""
        matrix = self.entries.matrix
        if without is not None:
            matrix = matrix.copy()
            matrix.data[without[self.entries.pair]] = 0.0
        return np.asarray(scaled(matrix) @ self.columns, dtype=np.float32)

    def projected(self, matrix: sp.csr_matrix) -> np.ndarray:
        """float32 [rows, width]: vectors of nodes outside the basis, from their neighbourhoods [rows, columns].

        A basis keeps more of the rows that it was made from than of other rows. Scores compare the two, so the other rows
        are multiplied by the mean ratio.
        """
        return np.asarray(scaled(matrix) @ self.columns, dtype=np.float32) * self._lost_by_others

    @cached_property
    def _lost_by_others(self) -> np.float32:
        """Ratio of the share of length that rows of a basis keep to that of other rows, by a basis of nine rows in ten."""
        rows = scaled(self.entries.matrix)
        rows = rows[np.diff(rows.indptr) > 0]
        others = np.arange(rows.shape[0]) % 10 == 9
        basis = _columns(rows[~others], *factors(rows[~others], self.columns.shape[1], seed=0))
        kept = [_kept(rows[part], basis) for part in (~others, others)]
        return np.float32(kept[0] / kept[1] if min(kept) > 0 else 1.0)


def _columns(rows: sp.csr_matrix, left: np.ndarray, values: np.ndarray) -> np.ndarray:
    """float32 [columns, width]: right singular vectors, from left ones times ``values``; 0 for rounding errors."""
    kept = values > _ALMOST_ZERO * max(float(values.max(initial=0.0)), 1e-30)
    inverse = np.where(kept, 1.0 / np.where(kept, values, 1.0).astype(np.float64) ** 2, 0.0).astype(np.float32)
    return np.asarray(rows.T.tocsr() @ (left * inverse), dtype=np.float32)


def _kept(rows: sp.csr_matrix, columns: np.ndarray) -> float:
    """Mean share of a row's length that its vector keeps."""
    length = np.sqrt(np.asarray(rows.multiply(rows).sum(1)).ravel())
    return float(np.mean(np.linalg.norm(np.asarray(rows @ columns), axis=1) / length)) if len(length) else 0.0


def shortened(vectors: np.ndarray) -> np.ndarray:
    """Rows of length √(l / (l + :data:`SHORTENING`)) instead of l, which differ less in length."""
    length = np.linalg.norm(vectors, axis=1, keepdims=True)
    rescaled: np.ndarray = vectors / np.maximum(np.sqrt(length * (length + SHORTENING)), 1e-6).astype(np.float32)
    return rescaled
