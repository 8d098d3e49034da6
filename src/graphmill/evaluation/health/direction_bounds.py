"""Bounds of the number of directions of an embedding, or of one node type; relative ones for narrow embeddings."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from graphmill.evaluation.health.checks import HealthThresholds
    from graphmill.evaluation.health.figures import Figures, TypeFigures

SMALL_SHARE = 0.3
"""The absolute minima (components, ranks) are capped at this fraction of the dimensions: a 16-dimensional
embedding cannot have 15 components of similar size."""


def components_90_needed(thresholds: HealthThresholds, available: int) -> int:
    """Components for 90 % of the variance that an embedding with ``available`` dimensions must have."""
    absolute = min(thresholds.components_90_min, math.ceil(SMALL_SHARE * available))
    return int(max(absolute, math.ceil(thresholds.components_90_share_min * available)))


def type_rank_needed(thresholds: HealthThresholds, available: int) -> float:
    """Effective rank that a type with ``available`` = min(dimensions, its rows − 1) must have."""
    return max(
        thresholds.type_rank_share_min * available, min(thresholds.type_rank_min, max(1.0, SMALL_SHARE * available))
    )


def low_rank(figures: Figures, thresholds: HealthThresholds) -> bool:
    """Whether the rows use too few directions once their mean is subtracted."""
    return bool(
        figures.components_90 < components_90_needed(thresholds, figures.available)
        or figures.share(figures.effective_rank) < thresholds.effective_rank_share_min
    )


def at_a_point(kind: TypeFigures, thresholds: HealthThresholds) -> bool:
    """Whether the rows of a type are practically the same direction."""
    return kind.judged and kind.cosine > thresholds.type_cosine_max


def narrow(kind: TypeFigures, thresholds: HealthThresholds) -> bool:
    """Whether the rows of a type vary in too few directions."""
    return kind.judged and kind.effective_rank < type_rank_needed(thresholds, kind.available)
