"""Rogue dimensions: one to three coordinates that carry most of the variance, or most of the mean cosine.

"All bark and no bite" (Timkey & van Schijndel 2021, arXiv 2109.04404): such coordinates decide every similarity while
the other dimensions hold the information. A coordinate that only tells the types apart is not called rogue.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from graphmill.evaluation.health.moments import Moments
from graphmill.evaluation.health.spectrum import Float64, effective_rank, spectrum_of

#: A dimension is an outlier when it carries this share by itself and this many times the median dimension's.
OUTLIER_SHARE = 0.1
OUTLIER_FACTOR = 20.0
#: For shares of the cosine, which are squares of the mean direction's coordinates and spread more by chance.
OUTLIER_FACTOR_COSINE = 100.0
#: More outliers than this are a low-dimensional embedding, not rogue dimensions in a sound one.
MOST_ROGUES = 3
#: A dimension whose variance lies to this part between the types is a marker of the type.
TYPE_MARKER = 0.9
#: Below this mean cosine it makes no sense to ask which dimension it comes from.
COSINE_WORTH_EXPLAINING = 0.2


@dataclass(frozen=True)
class Rogue:
    """Outlying dimensions (0-based) and what they carry together; no outliers is an empty tuple and zeros."""

    dimensions: tuple[int, ...]
    variance_share: float
    cosine_share: float

    @property
    def share(self) -> float:
        """The larger of the two shares."""
        return max(self.variance_share, self.cosine_share)


def rogue_of(moments: Moments, available: int, rank_share_min: float) -> Rogue:
    """Find the rogue dimensions; what is left without them must have an effective rank of ``rank_share_min``.

    ``available``: min(d, n − 1), what the effective rank is a share of.
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
