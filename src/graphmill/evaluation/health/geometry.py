"""First and second moments of an embedding, in total and by type. It works in blocks, without an n × n array or a copy of X.

Rows are scaled by their root mean square, so that nothing overflows or underflows; all figures are invariant to this.
Second moments are taken about each type's mean and combined afterwards. So no digits are lost if a common offset is a
thousand times larger than the variation (a collapsed embedding). Products are in float64, so the figures do not depend
on the block size.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphmill.evaluation.health.spectrum import Float64, spectrum_of


@dataclass(frozen=True)
class TypeMoments:
    """Moments of one type's rows: count, mean (d), sum of unit rows (d), within-type variances (d) and spectrum."""

    rows: int
    mean: Float64
    unit_sum: Float64
    variances: Float64
    spectrum: Float64

    @property
    def cosine(self) -> float:
        """Mean cosine of two different rows of the type, exact: (‖Σu‖² − n)/(n(n − 1)); nan with fewer than two rows."""
        n = self.rows
        return float((self.unit_sum @ self.unit_sum - n) / (n * (n - 1))) if n > 1 else float("nan")


@dataclass(frozen=True)
class Moments:
    """Moments of all live rows.

    ``mean`` (d), ``covariance`` and ``second`` (d × d: centred and uncentred second moment), ``unit_sum`` and
    ``unit_squares`` (d: Σ u and Σ u² over unit rows u), ``standardised_sum`` (d: Σ of unit rows after standardising
    each dimension), ``types``: one :class:`TypeMoments` per type code, empty types included.
    """

    rows: int
    mean: Float64
    covariance: Float64
    second: Float64
    unit_sum: Float64
    unit_squares: Float64
    standardised_sum: Float64
    types: tuple[TypeMoments, ...]

    @property
    def cosine_by_dimension(self) -> Float64:
        """The contribution of each dimension to the mean cosine (d); the sum is the mean cosine (Timkey & van
        Schijndel, arXiv 2109.04404)."""
        if self.rows < 2:
            return np.zeros_like(self.unit_sum)
        return (np.square(self.unit_sum) - self.unit_squares) / (self.rows * (self.rows - 1))

    @property
    def standardised_cosine(self) -> float:
        """Mean cosine of two different rows after each dimension is standardised to mean 0 and standard deviation 1."""
        n = self.rows
        if n < 2:
            return 0.0
        return float((self.standardised_sum @ self.standardised_sum - n) / (n * (n - 1)))

    @property
    def between_type_share(self) -> Float64:
        """Share of each dimension's variance (d) that lies between the types' means: the correlation ratio η²."""
        total = np.diag(self.covariance)
        within = sum((t.rows * t.variances for t in self.types), np.zeros_like(total)) / max(self.rows, 1)
        return np.where(total > 0, 1.0 - within / np.where(total > 0, total, 1.0), 0.0)


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
    squares, unit_squares = np.zeros(d), np.zeros(d)
    for t, rows in enumerate(groups):
        for part, block in _blocks(X, rows, scale, block_rows):
            unit = block / (norms[part] * scale)[:, None]
            sums[t] += block.sum(axis=0)
            squares += np.einsum("ij,ij->j", block, block)
            unit_sums[t] += unit.sum(axis=0)
            unit_squares += np.einsum("ij,ij->j", unit, unit)
    mean = sums.sum(axis=0) / max(n, 1)
    deviation = np.sqrt(np.maximum(squares / max(n, 1) - np.square(mean), 0.0))
    constant = deviation <= 1e-7 * max(float(deviation.max(initial=0.0)), 1e-30)
    deviation[constant] = np.inf  # such a dimension has no information

    covariance = np.zeros((d, d))
    standardised_sum = np.zeros(d)
    found: list[TypeMoments] = []
    for t, rows in enumerate(groups):
        own_mean = sums[t] / max(len(rows), 1)
        gram = np.zeros((d, d))
        for _, block in _blocks(X, rows, scale, block_rows):
            standardised = (block - mean) / deviation
            length = np.sqrt(np.einsum("ij,ij->i", standardised, standardised))
            standardised_sum += (1.0 / np.where(length > 0, length, np.inf)) @ standardised
            block -= own_mean
            gram += block.T @ block
        within = gram / max(len(rows), 1)
        variances, spectrum = np.maximum(np.diag(within), 0.0), spectrum_of(within)[: max(len(rows) - 1, 0)]
        found.append(TypeMoments(len(rows), own_mean, unit_sums[t], variances, spectrum))
        gap = own_mean - mean
        covariance += gram + len(rows) * np.outer(gap, gap)
    covariance /= max(n, 1)
    second = covariance + np.outer(mean, mean)
    return Moments(n, mean, covariance, second, unit_sums.sum(axis=0), unit_squares, standardised_sum, tuple(found))


def _blocks(
    X: NDArray[Any], rows: NDArray[np.intp], scale: float, block_rows: int
) -> Iterator[tuple[NDArray[np.intp], Float64]]:
    for start in range(0, len(rows), block_rows):
        part = rows[start : start + block_rows]
        yield part, X[part].astype(np.float64) * scale
