"""The thresholds of the embedding health checks: settings, so that a data set with other needs can move them.

Where a threshold was measured and where it is convention is written in docs/reference/checks.md. Thresholds on a number of
dimensions are relative to the dimensions that the rows can fill at all (``min(dimensions, rows − 1)``); see
:func:`components_90_needed`.
"""

import math

from graphmill.settings import Settings, setting

#: Below this share of the dimensions the absolute minima (components, participation) give way to a relative one: a
#: 16-dimensional embedding cannot have 15 components of similar size.
SMALL_SHARE = 0.3


class HealthThresholds(Settings):
    """Bounds of :func:`graphmill.evaluation.health.report.health_report`. A figure exactly at its bound passes."""

    mean_cosine_max: float = setting(
        0.5, "Mean cosine of two different rows; above, all rows share a direction (cone).", gt=0, lt=1
    )
    complete_cosine_min: float = setting(
        0.95, "Mean cosine from which a cone is called a complete collapse: all rows are practically one.", gt=0, lt=1
    )
    components_90_min: int = setting(
        15, "Principal components for 90 % of the variance; at most 30 % of the dimensions are asked for.", ge=1
    )
    components_90_share_min: float = setting(
        0.04, "The same number as a share of the dimensions; below, the rows live in a subspace.", ge=0, le=1
    )
    effective_rank_share_min: float = setting(
        0.1, "Effective rank (RankMe, centred) as a share of the dimensions; below, a subspace.", ge=0, le=1
    )
    participation_min: float = setting(
        2.0, "Uncentred participation ratio; below, one direction carries nearly everything.", ge=1
    )
    participation_share_min: float = setting(
        0.01, "Centred participation ratio as a share of the dimensions; below, a subspace.", ge=0, le=1
    )
    uniformity_max: float = setting(
        -1.0, "Uniformity (Wang & Isola); 0 is complete collapse, about −4 is isotropic.", ge=-4, le=0
    )
    type_cosine_max: float = setting(
        0.9, "Mean cosine within one node type; above, the type has collapsed to a point.", gt=0, le=1
    )
    type_rank_share_min: float = setting(
        0.05, "Effective rank within one type, share of the dimensions; below, it has collapsed.", ge=0, le=1
    )
    type_rank_min: float = setting(
        3.0, "The same as a number; at most 30 % of the dimensions that the type's rows can fill are asked for.", ge=1
    )
    type_top1_max: float = setting(
        0.5, "Share of a type's variance on its first component; above, it is nearly a line (warning).", gt=0, le=1
    )
    type_separation_min: float = setting(
        0.01, "Mean cosine within types less that between types; below, types do not differ (warning).", ge=-1, le=1
    )
    type_rows_min: int = setting(30, "Types with fewer rows are shown but not judged.", ge=3)
    disease_cosine_low: float = setting(
        0.5, "Lower end of the band shown for the disease type's mean cosine; not judged.", ge=-1, le=1
    )
    disease_cosine_high: float = setting(
        0.8, "Upper end of that band, judged together with the type's effective rank.", ge=-1, le=1
    )
    rogue_share_max: float = setting(
        0.5, "Share of the variance, or of the mean cosine, that one to three dimensions may carry.", gt=0, le=1
    )
    dead_rows_max: int = setting(0, "Rows that may be all zero (or vanishing beside the others).", ge=0)
    duplicated_share_max: float = setting(
        0.01, "Share of rows that may repeat another row exactly; any such row is a warning.", ge=0, le=1
    )
    norm_spread_max: float = setting(
        1.0, "Standard deviation of the row norms over their mean; above, hubs are inflated (warning).", gt=0
    )
    link_signal_min: float = setting(
        0.1, "Mean |AMRI| of the held-out link ranking; below, vectors and ids do not belong together.", ge=0, lt=1
    )


def components_90_needed(thresholds: HealthThresholds, available: int) -> int:
    """Components for 90 % of the variance that an embedding with ``available`` dimensions must have."""
    absolute = min(thresholds.components_90_min, math.ceil(SMALL_SHARE * available))
    return max(absolute, math.ceil(thresholds.components_90_share_min * available))


def participation_needed(thresholds: HealthThresholds, available: int) -> float:
    """Uncentred participation ratio that an embedding with ``available`` dimensions must have."""
    return _at_most_a_part(thresholds.participation_min, available)


def type_rank_needed(thresholds: HealthThresholds, available: int) -> float:
    """Effective rank that a type with ``available`` = min(dimensions, its rows − 1) must have."""
    return max(thresholds.type_rank_share_min * available, _at_most_a_part(thresholds.type_rank_min, available))


def _at_most_a_part(directions: float, available: int) -> float:
    return min(directions, max(1.0, SMALL_SHARE * available))
