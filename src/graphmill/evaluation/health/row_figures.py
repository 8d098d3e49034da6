"""Figures of single rows: norms, rows that are not finite, dead rows, duplicated rows; in one pass over the embedding."""

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: A row shorter than this fraction of the median length is dead: its direction is rounding noise.
DEAD_BELOW = 1e-6


@dataclass(frozen=True)
class RowFigures:
    """Figures of each of the n rows.

    ``norms``: float64, Euclidean, nan for a row that is not finite. ``finite``, ``dead``, ``repeats``: bool;
    ``repeats`` marks rows that equal an earlier live row bit for bit (−0.0 counts as 0.0).
    """

    norms: NDArray[np.float64]
    finite: NDArray[np.bool_]
    dead: NDArray[np.bool_]
    repeats: NDArray[np.bool_]

    @property
    def live(self) -> NDArray[np.bool_]:
        """Rows that have a direction: finite and not dead."""
        return self.finite & ~self.dead

    @property
    def norm_spread(self) -> float:
        """Standard deviation of the live rows' norms, divided by their mean."""
        norms = self.norms[self.live]
        return float(norms.std() / norms.mean()) if len(norms) else 0.0


def row_figures(X: NDArray[Any], block_rows: int) -> RowFigures:
    """Norms, finiteness, dead and repeated rows of X (n × d), in blocks of ``block_rows`` rows."""
    n = len(X)
    squares = np.empty(n)
    keys = np.empty(n, dtype="V16")
    for start in range(0, n, block_rows):
        block = np.asarray(X[start : start + block_rows]) + X.dtype.type(0)  # −0.0 becomes 0.0
        wide = block.astype(np.float32).astype(np.float64)
        squares[start : start + len(block)] = np.einsum("ij,ij->i", wide, wide)
        keys[start : start + len(block)] = [hashlib.blake2b(row, digest_size=16).digest() for row in block]
    finite = np.isfinite(squares)
    norms = np.sqrt(np.where(finite, squares, np.nan))
    alive = norms[finite & (squares > 0)]
    bound = DEAD_BELOW * float(np.median(alive)) if len(alive) else 0.0
    dead = finite & (np.nan_to_num(norms, nan=np.inf) <= bound)
    repeats = finite & ~dead
    live = np.flatnonzero(repeats)
    repeats[live[np.unique(keys[live], return_index=True)[1]]] = False  # the first row of each key
    return RowFigures(norms, finite, dead, repeats)
