"""Figures of single rows: norms, rows that are not finite, dead rows, duplicated rows; in one pass over the embedding."""

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
    n, d = X.shape
    squares = np.empty(n)
    keys = np.empty(n, dtype=np.uint64)
    # Multilinear hashing: rows that differ collide with probability 2⁻⁶⁴, and equality is verified afterwards.
    multipliers = np.random.default_rng(0x5EED).integers(0, 2**63, size=d, dtype=np.uint64) * np.uint64(2) + np.uint64(
        1
    )
    for start in range(0, n, block_rows):
        block = np.asarray(X[start : start + block_rows], dtype=np.float32)
        wide = block.astype(np.float64)
        squares[start : start + len(block)] = np.einsum("ij,ij->i", wide, wide)
        bits = (block + np.float32(0.0)).view(np.uint32).astype(np.uint64)
        keys[start : start + len(block)] = (bits * multipliers).sum(axis=1, dtype=np.uint64)
    finite = np.isfinite(squares)
    norms = np.sqrt(np.where(finite, squares, np.nan))
    alive = norms[finite & (squares > 0)]
    bound = DEAD_BELOW * float(np.median(alive)) if len(alive) else 0.0
    dead = finite & (np.nan_to_num(norms, nan=np.inf) <= bound)
    return RowFigures(norms, finite, dead, _repeats(X, keys, finite & ~dead))


def _repeats(X: NDArray[Any], keys: NDArray[np.uint64], live: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Mark live rows that equal the first live row with the same key. Only rows with equal keys are compared."""
    rows = np.flatnonzero(live)
    _, first, inverse = np.unique(keys[rows], return_index=True, return_inverse=True)
    leader = rows[first[inverse]]
    candidates = np.flatnonzero(leader != rows)
    repeats = np.zeros(len(keys), dtype=bool)
    for start in range(0, len(candidates), 4096):
        part = candidates[start : start + 4096]
        same = np.all(np.asarray(X[rows[part]]) == np.asarray(X[leader[part]]), axis=1)
        repeats[rows[part[same]]] = True
    return repeats
