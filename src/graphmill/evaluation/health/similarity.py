"""Cosine and uniformity: the similarity of rows within types, between types and over all pairs."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphmill.evaluation.health.moments import Moments
from graphmill.evaluation.health.spectrum import Float64

#: Number of rows for uniformity, drawn by the seed (RankMe's paper finds this number sufficient for spectra, too).
UNIFORMITY_ROWS = 25_600
#: Pairs are formed within groups of this many rows. A row's mean over its group is then known to 1/√3200 of its spread.
#: The estimate's variance is about that of all pairs (4ζ₁/m; the rest is smaller by the group size), at 1/8 of the work.
UNIFORMITY_GROUP = 3_200


@dataclass(frozen=True)
class Cosines:
    """Mean cosines of different rows, all exact (closed form over pairs, no sampling).

    ``overall``: every pair; ``within``: pairs of the same type; ``between``: pairs of different types (nan if there are
    none). ``by_type``: T × T means of the pairs of two types, the diagonal within one. ``variance_share``: the share of
    the unit rows' variance between the types' means, tr(S_B)/tr(S_T) as in Caliński & Harabasz 1974.
    """

    overall: float
    within: float
    between: float
    by_type: Float64
    variance_share: float

    @property
    def separation(self) -> float:
        """``within`` minus ``between``, the difference of ANOSIM (Clarke 1993) for cosines; 0 if types make no
        difference."""
        return self.within - self.between


def cosines_of(moments: Moments) -> Cosines:
    """All mean cosines from the sums of unit rows per type: Σ_{i≠j} u_i·u_j = ‖Σu‖² − n."""
    counts = np.array([t.rows for t in moments.types], dtype=np.float64)
    sums = np.stack([t.unit_sum for t in moments.types])
    inner = sums @ sums.T
    pairs = np.outer(counts, counts)
    np.fill_diagonal(pairs, counts * (counts - 1))
    np.fill_diagonal(inner, np.diag(inner) - counts)
    own = np.eye(len(counts), dtype=bool)
    n = float(moments.rows)
    between_types = sum(float(t.unit_sum @ t.unit_sum) / t.rows for t in moments.types if t.rows)
    common = float(moments.unit_sum @ moments.unit_sum) / n if n else 0.0
    return Cosines(
        overall=_ratio(float(inner.sum()), float(pairs.sum())),
        within=_ratio(float(inner[own].sum()), float(pairs[own].sum())),
        between=_ratio(float(inner[~own].sum()), float(pairs[~own].sum())),
        by_type=np.divide(inner, pairs, out=np.full_like(inner, np.nan), where=pairs > 0),
        variance_share=(between_types - common) / (n - common) if n - common > 1e-9 * n else 0.0,
    )


def _ratio(total: float, pairs: float) -> float:
    return total / pairs if pairs > 0 else float("nan")


@dataclass(frozen=True)
class Uniformity:
    """log E exp(−2‖u − v‖²) over random pairs of rows, the standard error of the estimate, and the number of rows."""

    value: float
    error: float
    rows: int


def uniformity_of(X: NDArray[Any], rows: NDArray[np.intp], norms: Float64, seed: int) -> Uniformity:
    """Uniformity (Wang & Isola 2020, arXiv 2005.10242) of the rows ``rows`` of X, on at most 25,600 of them.

    The error is the U-statistic's: 2·sd(row means)/√m on the mean (Hoeffding 1948), divided by the mean for the
    logarithm. With up to 3,200 rows, all pairs are used; the value is then exact and its error 0.
    """
    if len(rows) < 2:
        return Uniformity(0.0, 0.0, len(rows))
    order = np.random.default_rng(seed).permutation(len(rows))[:UNIFORMITY_ROWS]
    groups = np.array_split(rows[order], -(-len(order) // UNIFORMITY_GROUP))
    means = np.concatenate([_pair_means(X, group, norms) for group in groups])
    weights = np.concatenate([np.full(len(g), len(g) - 1.0) for g in groups])
    mean = float(np.average(means, weights=weights))
    if mean <= 0:  # the mean cannot be below exp(−8); rounding might be
        return Uniformity(-8.0, 0.0, len(order))
    error = 2.0 * float(means.std(ddof=1)) / np.sqrt(len(means)) / mean if len(groups) > 1 else 0.0
    return Uniformity(float(np.log(mean)), float(error), len(order))


def _pair_means(X: NDArray[Any], rows: NDArray[np.intp], norms: Float64) -> Float64:
    """For each of the rows, the mean of exp(−2‖u − v‖²) = exp(4·cos − 4) over the other rows of the group."""
    unit = (X[np.sort(rows)] / norms[np.sort(rows), None]).astype(np.float32)
    kernel = np.exp((np.minimum(unit @ unit.T, 1.0) - 1.0) * 4.0)
    sums: Float64 = kernel.sum(axis=1, dtype=np.float64) - kernel.diagonal().astype(np.float64)
    return sums / (len(rows) - 1)
