"""Rogue dimensions: one to three coordinates that carry most of the variance, or most of the mean cosine.

"All bark and no bite" (Timkey & van Schijndel 2021, arXiv 2109.04404): such coordinates decide every similarity, while
the other dimensions hold the information. A coordinate that only distinguishes the types does not count as rogue.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from graphmill.evaluation.health.moments import Moments
from graphmill.evaluation.health.spectrum import Float64, effective_rank, spectrum_of

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
    found = np.flatnonzero(outliers)
    if not 0 < len(found) <= MOST_ROGUES:
        return none
    keep = ~outliers
    rest = effective_rank(spectrum_of(moments.covariance[np.ix_(keep, keep)]))
    if rest < rank_share_min * max(min(available, int(keep.sum())), 1):
        return none
    return Rogue(tuple(found.tolist()), float(shares[found].sum()), float(cosine_shares[found].sum()))


def _outliers(shares: Float64, factor: float) -> NDArray[np.bool_]:
    return (shares > OUTLIER_SHARE) & (shares > factor * float(np.median(np.abs(shares))))
