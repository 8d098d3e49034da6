"""Orthogonal Procrustes: finds the rotation that best maps one embedding onto another (Schönemann 1966)."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Float64 = NDArray[np.float64]
ROWS = 65_536


@dataclass(frozen=True)
class Rotation:
    """``matrix`` float64 (d × d), orthogonal: ``A @ matrix`` is closest to B. ``residual``: ‖A·matrix − B‖ / ‖B‖."""

    matrix: Float64
    residual: float

    def apply(self, block: NDArray[Any]) -> NDArray[np.float32]:
        """float32 (rows × d): the rotated rows."""
        return np.asarray(np.asarray(block, np.float64) @ self.matrix, dtype=np.float32)


def fit_rotation(blocks: Iterable[tuple[NDArray[Any], NDArray[Any]]], dim: int) -> Rotation:
    """Fit the rotation of the first block of each pair onto the second; both (rows × dim), of the same nodes.

    There is no shift and no scaling, because both would change scores. Rows that are not finite on one side are left
    out.
    """
    cross = np.zeros((dim, dim))
    squares = np.zeros(2)
    for moved, fixed in blocks:
        a, b = np.asarray(moved, np.float64), np.asarray(fixed, np.float64)
        kept = np.isfinite(a).all(axis=1) & np.isfinite(b).all(axis=1)
        a, b = a[kept], b[kept]
        cross += a.T @ b
        squares += np.square(a).sum(), np.square(b).sum()
    left, values, right = np.linalg.svd(cross)
    rest = max(squares[0] + squares[1] - 2 * values.sum(), 0.0)
    return Rotation(left @ right, float(np.sqrt(rest / squares[1])) if squares[1] else 0.0)


def in_blocks(a: NDArray[Any], b: NDArray[Any]) -> Iterable[tuple[NDArray[Any], NDArray[Any]]]:
    """Yield both in blocks of rows, so that float64 copies stay small."""
    for start in range(0, len(a), ROWS):
        yield a[start : start + ROWS], b[start : start + ROWS]
