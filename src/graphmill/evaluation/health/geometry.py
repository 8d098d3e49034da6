"""The geometry of an embedding: first and second moments, in total and by type, and the figures that follow from them.

It works in blocks, without an n × n array or a copy of X. Rows are scaled by their root mean square, so that nothing
overflows or underflows; all figures are invariant to this. Second moments are taken about each type's mean and combined
afterwards. So no digits are lost if a common offset is a thousand times larger than the variation (a collapsed
embedding). Products are in float64, so the figures do not depend on the block size.

Rogue dimensions are one to three coordinates that carry most of the variance, or most of the mean cosine: "All bark and
no bite" (Timkey & van Schijndel 2021, arXiv 2109.04404). They decide every similarity, while the other dimensions hold
the information. A coordinate that only distinguishes the types does not count as rogue.
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
    ``unit_squares`` (d: Σ u and Σ u² over unit rows u), ``types``: one :class:`TypeMoments` per type code, empty types
    included.
    """

    rows: int
    mean: Float64
    covariance: Float64
    second: Float64
    unit_sum: Float64
    unit_squares: Float64
    types: tuple[TypeMoments, ...]

    @property
    def cosine_by_dimension(self) -> Float64:
        """The contribution of each dimension to the mean cosine (d); the sum is the mean cosine (Timkey & van
        Schijndel, arXiv 2109.04404)."""
        if self.rows < 2:
            return np.zeros_like(self.unit_sum)
        return (np.square(self.unit_sum) - self.unit_squares) / (self.rows * (self.rows - 1))

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
    unit_squares = np.zeros(d)
    for t, rows in enumerate(groups):
        for part, block in _blocks(X, rows, scale, block_rows):
            unit = block / (norms[part] * scale)[:, None]
            sums[t] += block.sum(axis=0)
            unit_sums[t] += unit.sum(axis=0)
            unit_squares += np.einsum("ij,ij->j", unit, unit)
    mean = sums.sum(axis=0) / max(n, 1)

    covariance = np.zeros((d, d))
    result: list[TypeMoments] = []
    for t, rows in enumerate(groups):
        type_mean = sums[t] / max(len(rows), 1)
        gram = np.zeros((d, d))
        for _, block in _blocks(X, rows, scale, block_rows):
            block -= type_mean
            gram += block.T @ block
        within = gram / max(len(rows), 1)
        variances, spectrum = np.maximum(np.diag(within), 0.0), spectrum_of(within)[: max(len(rows) - 1, 0)]
        result.append(TypeMoments(len(rows), type_mean, unit_sums[t], variances, spectrum))
        gap = type_mean - mean
        covariance += gram + len(rows) * np.outer(gap, gap)
    covariance /= max(n, 1)
    second = covariance + np.outer(mean, mean)
    return Moments(n, mean, covariance, second, unit_sums.sum(axis=0), unit_squares, tuple(result))


def _blocks(
    X: NDArray[Any], rows: NDArray[np.intp], scale: float, block_rows: int
) -> Iterator[tuple[NDArray[np.intp], Float64]]:
    for start in range(0, len(rows), block_rows):
        part = rows[start : start + block_rows]
        yield part, X[part].astype(np.float64) * scale


@dataclass(frozen=True)
class Cosines:
    """Mean cosines of different rows, all exact (closed form over pairs, no sampling).

    ``overall``: every pair; ``within``: pairs of the same type; ``between``: pairs of different types (nan if there are
    none).
    """

    overall: float
    within: float
    between: float

    @property
    def separation(self) -> float:
        """``within`` minus ``between``, the difference of ANOSIM (Clarke 1993) for cosines; 0 if types make no
        difference."""
        return self.within - self.between


def cosines_of(moments: Moments) -> Cosines:
    """All mean cosines from the sums of unit rows per type: Σ_{i≠j} u_i·u_j = ‖Σu‖² − n."""
    counts = np.array([t.rows for t in moments.types], dtype=np.float64)
    within = sum(float(t.unit_sum @ t.unit_sum) for t in moments.types) - moments.rows
    every, pairs = float(moments.unit_sum @ moments.unit_sum) - moments.rows, moments.rows * (moments.rows - 1.0)
    same = float((counts * (counts - 1)).sum())
    return Cosines(_ratio(every, pairs), _ratio(within, same), _ratio(every - within, pairs - same))


def _ratio(total: float, pairs: float) -> float:
    return total / pairs if pairs > 0 else float("nan")


#: A dimension is an outlier if it alone has this share, and this many times the share of the median dimension.
OUTLIER_SHARE = 0.1
OUTLIER_FACTOR = 20.0
#: The same for shares of the cosine, which vary more by chance, as squares of the mean direction's coordinates.
OUTLIER_FACTOR_COSINE = 100.0
#: With more outliers than this, the embedding is low-dimensional and has no rogue dimensions.
MOST_ROGUES = 3
#: A dimension with at least this share of its variance between the types is a marker of the type.
TYPE_MARKER = 0.9
#: Below this mean cosine, the contributions of dimensions to it have no meaning.
COSINE_WORTH_EXPLAINING = 0.2


@dataclass(frozen=True)
class Rogue:
    """Outlying dimensions (0-based) and their joint shares; without outliers an empty tuple and zeros."""

    dimensions: tuple[int, ...]
    variance_share: float
    cosine_share: float

    @property
    def share(self) -> float:
        """The larger of the two shares."""
        return max(self.variance_share, self.cosine_share)


def rogue_of(moments: Moments, available: int, rank_share_min: float) -> Rogue:
    """Find the rogue dimensions. The remaining dimensions must have an effective rank of at least ``rank_share_min``.

    ``available``: min(d, n − 1); the effective rank is a share of it.
    """
    none = Rogue((), 0.0, 0.0)
    variance = np.diag(moments.covariance)
    total = float(variance.sum())
    if total <= 0 or len(variance) <= 2 * MOST_ROGUES:
        return none
    by_cosine = moments.cosine_by_dimension
    mean_cosine = float(by_cosine.sum())
    shares = variance / total
    cosine_shares = by_cosine / mean_cosine if mean_cosine >= COSINE_WORTH_EXPLAINING else np.zeros_like(by_cosine)
    marker = moments.between_type_share > TYPE_MARKER
    outliers = (_outliers(shares, OUTLIER_FACTOR) | _outliers(cosine_shares, OUTLIER_FACTOR_COSINE)) & ~marker
    result = np.flatnonzero(outliers)
    if not 0 < len(result) <= MOST_ROGUES:
        return none
    keep = ~outliers
    rest = effective_rank(spectrum_of(moments.covariance[np.ix_(keep, keep)]))
    if rest < rank_share_min * max(min(available, int(keep.sum())), 1):
        return none
    return Rogue(tuple(result.tolist()), float(shares[result].sum()), float(cosine_shares[result].sum()))


def _outliers(shares: Float64, factor: float) -> NDArray[np.bool_]:
    return (shares > OUTLIER_SHARE) & (shares > factor * float(np.median(np.abs(shares))))
