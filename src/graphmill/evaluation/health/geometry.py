"""The geometry of an embedding: first and second moments, in total and by type, and the figures that follow from them.

It works in blocks, without an n × n array or a copy of X. Rows are scaled by their root mean square, so that nothing
overflows or underflows; all figures are invariant to this. Second moments are taken about each type's mean and combined
afterwards. So no digits are lost if a common offset is a thousand times larger than the variation (a collapsed
embedding). Products are in float64, so the figures do not depend on the block size.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Float64 = NDArray[np.float64]


def spectrum_of(gram: Float64) -> Float64:
    """Eigenvalues of a symmetric positive semi-definite matrix (k × k), descending; rounding noise becomes 0."""
    if gram.shape[0] == 0:
        return np.zeros(0)
    values = np.linalg.eigvalsh(gram)[::-1]
    noise = max(float(values[0]), 0.0) * gram.shape[0] * np.finfo(np.float64).eps
    return np.where(values > noise, values, 0.0)


def components_for(spectrum: Float64, share: float) -> int:
    """The smallest k whose k largest eigenvalues hold at least ``share`` of their sum (PCA's explained variance)."""
    total = float(spectrum.sum())
    if total <= 0:
        return 0
    cumulated = np.cumsum(spectrum) / total
    return min(int(np.searchsorted(cumulated, share - 1e-12)) + 1, len(spectrum))


def participation_ratio(spectrum: Float64) -> float:
    """(Σ λ)² / Σ λ²: the number of directions if they all had the same size; between 1 and the dimension."""
    squares = float(np.square(spectrum).sum())
    return float(spectrum.sum()) ** 2 / squares if squares > 0 else 0.0


def effective_rank(spectrum: Float64) -> float:
    """exp(−Σ p log p) with p_k = s_k / Σ s and the singular values s = √λ.

    Roy & Vetterli 2007; as a health figure RankMe (Garrido et al. 2023, arXiv 2210.02885).
    """
    singular = np.sqrt(spectrum)
    total = float(singular.sum())
    if total <= 0:
        return 0.0
    p = singular[singular > 0] / total
    return float(np.exp(-np.sum(p * np.log(p))))


@dataclass(frozen=True)
class TypeMoments:
    """Moments of one type's rows: their number, the sum of unit rows (d), and the spectrum about the type's mean."""

    rows: int
    unit_sum: Float64
    spectrum: Float64

    @property
    def cosine(self) -> float:
        """Mean cosine of two different rows, exact: (‖Σu‖² − n)/(n(n − 1)); nan with fewer than two rows."""
        return _mean_cosine(self.rows, self.unit_sum)


@dataclass(frozen=True)
class Moments:
    """Moments of all live rows.

    ``covariance`` and ``second`` (d × d: centred and uncentred second moment), ``unit_sum`` (d: Σ u over unit rows u),
    ``types``: one :class:`TypeMoments` per type code, empty types included.
    """

    rows: int
    covariance: Float64
    second: Float64
    unit_sum: Float64
    types: tuple[TypeMoments, ...]

    @property
    def cosine(self) -> float:
        """As :attr:`TypeMoments.cosine`, of all rows."""
        return _mean_cosine(self.rows, self.unit_sum)


def _mean_cosine(rows: int, unit_sum: Float64) -> float:
    return float((unit_sum @ unit_sum - rows) / (rows * (rows - 1))) if rows > 1 else float("nan")


def moments_of(X: NDArray[Any], types: NDArray[Any], count: int, norms: Float64, block_rows: int) -> Moments:
    """Moments of X (n × d), whose rows all have a positive, finite norm.

    ``types``: int codes (n) in 0..count-1; ``norms``: float64 (n). Peak memory: a few d × d and block × d arrays in
    float64.
    """
    n, d = X.shape
    scale = 1.0 / float(np.sqrt(np.mean(np.square(norms)))) if n else 1.0
    order = np.argsort(types, kind="stable")
    groups = np.split(order, np.searchsorted(types[order], np.arange(1, count)))

    sums, unit_sums = np.zeros((count, d)), np.zeros((count, d))
    for t, rows in enumerate(groups):
        for part, block in _blocks(X, rows, scale, block_rows):
            sums[t] += block.sum(axis=0)
            unit_sums[t] += (block / (norms[part] * scale)[:, None]).sum(axis=0)
    mean = sums.sum(axis=0) / max(n, 1)

    covariance = np.zeros((d, d))
    result: list[TypeMoments] = []
    for t, rows in enumerate(groups):
        type_mean = sums[t] / max(len(rows), 1)
        gram = np.zeros((d, d))
        for _, block in _blocks(X, rows, scale, block_rows):
            block -= type_mean
            gram += block.T @ block
        spectrum = spectrum_of(gram / max(len(rows), 1))[: max(len(rows) - 1, 0)]
        result.append(TypeMoments(len(rows), unit_sums[t], spectrum))
        gap = type_mean - mean
        covariance += gram + len(rows) * np.outer(gap, gap)
    covariance /= max(n, 1)
    second = covariance + np.outer(mean, mean)
    return Moments(n, covariance, second, unit_sums.sum(axis=0), tuple(result))


def _blocks(
    X: NDArray[Any], rows: NDArray[np.intp], scale: float, block_rows: int
) -> Iterator[tuple[NDArray[np.intp], Float64]]:
    for start in range(0, len(rows), block_rows):
        part = rows[start : start + block_rows]
        yield part, X[part].astype(np.float64) * scale
