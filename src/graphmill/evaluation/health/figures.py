"""Computes all figures of a health report once, as plain numbers. Verdicts and the diagnosis only read them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from graphmill.evaluation.health.moments import Moments, moments_of
from graphmill.evaluation.health.rogue import Rogue, rogue_of
from graphmill.evaluation.health.row_figures import RowFigures, row_figures
from graphmill.evaluation.health.similarity import Cosines, Uniformity, cosines_of, uniformity_of
from graphmill.evaluation.health.spectrum import (
    Float64,
    components_for,
    effective_rank,
    participation_ratio,
    spectrum_of,
    top1_ratio,
)

if TYPE_CHECKING:
    from graphmill.evaluation.health.thresholds import HealthThresholds


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
    top1_ratio: float
    norm_mean: float


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
    norm_spread: float
    cosines: Cosines
    standardised_cosine: float
    spectrum: Float64
    components_90: int
    top1_ratio: float
    effective_rank: float
    participation_centred: float
    participation_uncentred: float
    uniformity: Uniformity
    rogue: Rogue
    types: tuple[TypeFigures, ...]
    #: By type name, the numbers of rows that are not finite and of dead rows. Types without either are left out.
    broken_by_type: dict[str, tuple[int, int]]

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
    seed: int,
    block_rows: int,
) -> Figures:
    """Measure X (n × d) with type codes ``types`` (n) into ``names``. Geometric figures use only live rows."""
    n, d = X.shape
    rows = row_figures(X, block_rows)
    live = np.flatnonzero(rows.live)
    kept = X if len(live) == n else X[live]
    moments = moments_of(kept, types[live], len(names), rows.norms[live], block_rows)
    centred, uncentred = spectrum_of(moments.covariance), spectrum_of(moments.second)
    available = max(min(d, len(live) - 1), 0)
    broken = [np.bincount(types[mask], minlength=len(names)).tolist() for mask in (~rows.finite, rows.dead)]
    return Figures(
        rows=n,
        dimensions=d,
        live=len(live),
        available=available,
        non_finite=int((~rows.finite).sum()),
        dead=int(rows.dead.sum()),
        duplicated=int(rows.repeats.sum()),
        norm_spread=rows.norm_spread,
        cosines=cosines_of(moments),
        standardised_cosine=moments.standardised_cosine,
        spectrum=centred,
        components_90=components_for(centred, 0.9),
        top1_ratio=top1_ratio(centred),
        effective_rank=effective_rank(centred),
        participation_centred=participation_ratio(centred),
        participation_uncentred=participation_ratio(uncentred),
        uniformity=uniformity_of(X, live, rows.norms, seed),
        rogue=rogue_of(moments, available, thresholds.effective_rank_share_min),
        types=_type_figures(moments, types, names, rows, thresholds.type_rows_min),
        broken_by_type={name: (a, b) for name, a, b in zip(names, *broken, strict=True) if a or b},
    )


def _type_figures(
    moments: Moments, types: NDArray[Any], names: tuple[str, ...], rows: RowFigures, rows_min: int
) -> tuple[TypeFigures, ...]:
    counts = np.bincount(types, minlength=len(names)).tolist()
    norm_sums = np.bincount(types[rows.live], weights=rows.norms[rows.live], minlength=len(names)).tolist()
    found = []
    for name, count, norm_sum, own in zip(names, counts, norm_sums, moments.types, strict=True):
        available = max(min(len(own.mean), own.rows - 1), 0)
        rank = effective_rank(own.spectrum)
        found.append(
            TypeFigures(
                name=name,
                rows=count,
                live=own.rows,
                available=available,
                judged=own.rows >= rows_min,
                cosine=own.cosine,
                effective_rank=rank,
                rank_share=rank / available if available > 0 else float("nan"),
                top1_ratio=top1_ratio(own.spectrum),
                norm_mean=norm_sum / own.rows if own.rows else float("nan"),
            )
        )
    return tuple(found)
