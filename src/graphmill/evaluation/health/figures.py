"""Computes all figures of a health report once, as plain numbers, which verdicts read; and a few that are
fast enough to compute during training, where they show a collapse long before the full report."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from graphmill.evaluation.health.geometry import (
    Float64,
    components_for,
    effective_rank,
    moments_of,
    participation_ratio,
    spectrum_of,
)
from graphmill.sampling.keyed import sampled

if TYPE_CHECKING:
    from graphmill.evaluation.health.checks import HealthThresholds

#: A row shorter than this fraction of the median length is dead: its direction is rounding noise.
DEAD_BELOW = 1e-6


@dataclass(frozen=True)
class RowFigures:
    """Figures of each of the n rows.

    ``norms``: float64, Euclidean, nan for a row that is not finite. ``finite``, ``dead``, ``repeats``, ``unconnected``,
    ``alike``: bool; ``repeats`` marks rows that equal an earlier live row bit for bit (−0.0 counts as 0.0).
    ``unconnected`` marks rows that would be dead, and ``alike`` rows that would repeat another, if their nodes' training
    neighbours did not explain it: they have none, or the same.
    """

    norms: NDArray[np.float64]
    finite: NDArray[np.bool_]
    dead: NDArray[np.bool_]
    repeats: NDArray[np.bool_]
    unconnected: NDArray[np.bool_]
    alike: NDArray[np.bool_]

    @property
    def live(self) -> NDArray[np.bool_]:
        """Rows that have a direction: finite and not zero."""
        return self.finite & ~self.dead & ~self.unconnected

    @property
    def norm_spread(self) -> float:
        """Standard deviation of the live rows' norms, divided by their mean."""
        norms = self.norms[self.live]
        return float(norms.std() / norms.mean()) if len(norms) else 0.0


def row_figures(X: NDArray[Any], block_rows: int, neighbourhoods: NDArray[np.int64] | None = None) -> RowFigures:
    """Norms, finiteness, dead and repeated rows of X (n × d), in blocks of ``block_rows`` rows.

    ``neighbourhoods``: int64 (n), equal for nodes with the same training neighbours; 0: without any; None: unknown.
    """
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
    zero = finite & (np.nan_to_num(norms, nan=np.inf) <= bound)
    if neighbourhoods is None:
        neighbourhoods = np.arange(1, n + 1)
    unconnected, live = zero & (neighbourhoods == 0), np.flatnonzero(finite & ~zero)
    same = np.unique(keys[live], return_inverse=True)[1]
    # The first row of each key in each neighbourhood; the first of these of each key.
    groups = np.unique(neighbourhoods[live], return_inverse=True)[1]
    first = np.sort(np.unique(same * len(live) + groups, return_index=True)[1])
    repeats, alike = np.zeros(n, bool), np.zeros(n, bool)
    alike[live] = repeats[live[first]] = True
    alike[live[first]] = False
    repeats[live[first[np.unique(same[first], return_index=True)[1]]]] = False
    return RowFigures(norms, finite, zero & ~unconnected, repeats, unconnected, alike)


ROWS = 4096


def sampled_rows(count: int, seed: int) -> NDArray[np.int64]:
    """The rows, of ``count``, that :func:`quick_health` uses, ascending: a seeded sample, or all if there are few."""
    return sampled(np.arange(count), ROWS, seed, "quick-health")


def quick_health(X: NDArray[np.float32], types: NDArray[np.int64], *, seed: int) -> dict[str, float]:
    """Figures of a seeded sample of at most 4,096 rows: ``participation_ratio`` (uncentred), ``mean_cosine``, lowest
    ``within_type_rank`` of types with 32 rows or more.

    They are those of the report, without rows that are zero or not finite.
    """
    rows = sampled_rows(len(X), seed)
    sample, (names, kinds) = X[rows], np.unique(types[rows], return_inverse=True)
    norms = np.linalg.norm(sample.astype(np.float64), axis=1)
    live = (norms > 0) & (norms < np.inf)
    moments = moments_of(sample[live], kinds[live], len(names), norms[live], ROWS)
    ranks = [effective_rank(each.spectrum) for each in moments.types if each.rows >= 32]
    out = {
        "participation_ratio": participation_ratio(spectrum_of(moments.second)),
        "mean_cosine": moments.cosine,
    }
    return out | ({"within_type_rank": min(ranks)} if ranks else {})


@dataclass(frozen=True)
class TypeFigures:
    """Figures of one node type: number of rows, of live rows, and the geometry of the live rows.

    ``effective_rank`` is centred on the type's own mean. ``rank_share`` is ``effective_rank`` / ``available``, with
    ``available`` = min(d, live − 1). ``judged``: whether there are enough live rows for a conclusion. Undefined figures
    are nan.
    """

    name: str
    rows: int
    live: int
    available: int
    judged: bool
    cosine: float
    effective_rank: float
    rank_share: float


@dataclass(frozen=True)
class Figures:
    """All measurements of one embedding. Shares are of ``available`` = min(dimensions, live rows − 1)."""

    rows: int
    dimensions: int
    live: int
    available: int
    non_finite: int
    dead: int
    duplicated: int
    unconnected: int
    alike: int
    norm_spread: float
    mean_cosine: float
    spectrum: Float64
    components_90: int
    effective_rank: float
    types: tuple[TypeFigures, ...]

    @property
    def duplicated_share(self) -> float:
        """Repeated rows over live rows."""
        return self.duplicated / max(self.live, 1)

    def share(self, value: float) -> float:
        """``value`` directions as a share of the available ones."""
        return value / max(self.available, 1)


def figures_of(
    X: NDArray[Any],
    types: NDArray[Any],
    names: tuple[str, ...],
    thresholds: HealthThresholds,
    block_rows: int,
    neighbourhoods: NDArray[np.int64] | None = None,
) -> Figures:
    """Measure X (n × d) with type codes ``types`` (n) into ``names``. Geometric figures use only live rows.

    ``neighbourhoods``: as in :func:`row_figures`.
    """
    n, d = X.shape
    rows = row_figures(X, block_rows, neighbourhoods)
    live = np.flatnonzero(rows.live)
    kept = X if len(live) == n else X[live]
    moments = moments_of(kept, types[live], len(names), rows.norms[live], block_rows)
    centred = spectrum_of(moments.covariance)
    available = max(min(d, len(live) - 1), 0)
    by_type = []
    for name, count, each in zip(names, np.bincount(types, minlength=len(names)).tolist(), moments.types, strict=True):
        most, rank = max(min(d, each.rows - 1), 0), effective_rank(each.spectrum)
        judged, share = each.rows >= thresholds.type_rows_min, rank / most if most > 0 else float("nan")
        by_type.append(TypeFigures(name, count, each.rows, most, judged, each.cosine, rank, share))
    return Figures(
        rows=n,
        dimensions=d,
        live=len(live),
        available=available,
        non_finite=int((~rows.finite).sum()),
        dead=int(rows.dead.sum()),
        duplicated=int(rows.repeats.sum()),
        unconnected=int(rows.unconnected.sum()),
        alike=int(rows.alike.sum()),
        norm_spread=rows.norm_spread,
        mean_cosine=moments.cosine,
        spectrum=centred,
        components_90=components_for(centred, 0.9),
        effective_rank=effective_rank(centred),
        types=tuple(by_type),
    )
