"""Gives a failing embedding its name: which of the known ways to collapse this is.

Several bounds usually break at once (a cone also loses its participation ratio); the name is the most specific cause
that explains them. docs/reference/checks.md has the remedies in full.
"""

from dataclasses import dataclass

import numpy as np

from graphmill.evaluation.health.figures import Figures, TypeFigures
from graphmill.evaluation.health.thresholds import (
    HealthThresholds,
    components_90_needed,
    participation_needed,
    type_rank_needed,
)

NON_FINITE = "non_finite"
DEAD_ROWS = "dead_rows"
COMPLETE_COLLAPSE = "complete_collapse"
CONE = "cone"
SUBSPACE = "subspace"
TYPE_ONLY = "type_only"
COLLAPSED_TYPE = "collapsed_type"
ROGUE_DIMENSION = "rogue_dimension"
DUPLICATED_ROWS = "duplicated_rows"
SHUFFLED_IDS = "shuffled_ids"
FAILURES = (
    NON_FINITE,
    DEAD_ROWS,
    COMPLETE_COLLAPSE,
    CONE,
    SUBSPACE,
    TYPE_ONLY,
    COLLAPSED_TYPE,
    ROGUE_DIMENSION,
    DUPLICATED_ROWS,
    SHUFFLED_IDS,
)

#: How much closer than the other types a collapsed type's rows must lie for it to be a matter of the type.
TYPE_CONTRAST = 0.2
#: How many times the effective rank of a narrow type the others must have for it to be a matter of the type.
RANK_CONTRAST = 2.0


@dataclass(frozen=True)
class Diagnosis:
    """``name``: one of :data:`FAILURES`, "" when healthy. ``detail``: one sentence on what and where, "" likewise."""

    name: str
    detail: str


HEALTHY = Diagnosis("", "")


def diagnose(figures: Figures, thresholds: HealthThresholds, link_signal: float) -> Diagnosis:
    """The most specific name of what is wrong. ``link_signal``: mean |AMRI| of the link ranking, nan without one."""
    found = (
        _broken_rows(figures, thresholds)
        or _collapsed_types_at_a_point(figures, thresholds)
        or _complete_collapse(figures, thresholds)
        or _rogue(figures, thresholds)
        or _cone(figures, thresholds)
        or _duplicates(figures, thresholds)
        or _low_rank(figures, thresholds)
        or _tight_types(figures, thresholds)
        or _crowded(figures, thresholds)
        or _shuffled(thresholds, link_signal)
    )
    return found or HEALTHY


def low_rank(figures: Figures, thresholds: HealthThresholds) -> bool:
    """Whether the whole embedding uses too few of its directions."""
    return (
        figures.components_90 < components_90_needed(thresholds, figures.available)
        or figures.share(figures.effective_rank) < thresholds.effective_rank_share_min
        or figures.share(figures.participation_centred) < thresholds.participation_share_min
        or figures.participation_uncentred < participation_needed(thresholds, figures.available)
    )


def at_a_point(own: TypeFigures, thresholds: HealthThresholds) -> bool:
    """Whether the rows of a type are practically the same direction."""
    return own.judged and own.cosine > thresholds.type_cosine_max


def narrow(own: TypeFigures, thresholds: HealthThresholds) -> bool:
    """Whether the rows of a type vary in too few directions."""
    return own.judged and own.effective_rank < type_rank_needed(thresholds, own.available)


def _broken_rows(figures: Figures, thresholds: HealthThresholds) -> Diagnosis | None:
    if figures.non_finite:
        return Diagnosis(
            NON_FINITE, f"{figures.non_finite} of {figures.rows} rows hold NaN or infinity{_where(figures, 0)}."
        )
    if figures.live < 2:
        return Diagnosis(COMPLETE_COLLAPSE, f"Only {figures.live} of {figures.rows} rows are not zero.")
    if figures.dead > thresholds.dead_rows_max:
        return Diagnosis(DEAD_ROWS, f"{figures.dead} of {figures.rows} rows are zero{_where(figures, 1)}.")
    return None


def _where(figures: Figures, kind: int) -> str:
    hit = {name: counts[kind] for name, counts in figures.broken_by_type.items() if counts[kind]}
    shown = ", ".join(f"{name}: {count}" for name, count in sorted(hit.items(), key=lambda item: -item[1])[:5])
    return f" ({shown})" if shown else ""


def _collapsed_types_at_a_point(figures: Figures, thresholds: HealthThresholds) -> Diagnosis | None:
    judged = [own for own in figures.types if own.judged]
    collapsed = [own for own in judged if at_a_point(own, thresholds)]
    if len(judged) < 2 or not collapsed:
        return None
    if len(collapsed) == len(judged):
        if figures.cosines.separation < TYPE_CONTRAST:
            return None
        return Diagnosis(
            TYPE_ONLY,
            f"All {len(judged)} types are points: mean cosine {figures.cosines.within:.2f} within types, "
            f"{figures.cosines.between:.2f} between them.",
        )
    others = float(np.mean([own.cosine for own in judged if own not in collapsed]))
    sharp = [own for own in collapsed if own.cosine - others >= TYPE_CONTRAST]
    if not sharp:
        return None
    shown = ", ".join(f"'{own.name}' ({own.cosine:.2f})" for own in sharp)
    return Diagnosis(COLLAPSED_TYPE, f"Mean cosine within type {shown}; {others:.2f} in the other types.")


def _complete_collapse(figures: Figures, thresholds: HealthThresholds) -> Diagnosis | None:
    if figures.cosines.overall < thresholds.complete_cosine_min:
        return None
    return Diagnosis(COMPLETE_COLLAPSE, f"All rows are practically one: mean cosine {figures.cosines.overall:.3f}.")


def _rogue(figures: Figures, thresholds: HealthThresholds) -> Diagnosis | None:
    rogue = figures.rogue
    if rogue.share <= thresholds.rogue_share_max:
        return None
    what = "variance" if rogue.variance_share >= rogue.cosine_share else "mean cosine"
    which = ", ".join(str(dimension) for dimension in rogue.dimensions)
    return Diagnosis(ROGUE_DIMENSION, f"Dimension {which} (from 0) carries {rogue.share:.0%} of the {what}.")


def _cone(figures: Figures, thresholds: HealthThresholds) -> Diagnosis | None:
    if figures.cosines.overall <= thresholds.mean_cosine_max:
        return None
    return Diagnosis(CONE, f"All rows share a direction: mean cosine {figures.cosines.overall:.2f}.")


def _duplicates(figures: Figures, thresholds: HealthThresholds) -> Diagnosis | None:
    if figures.duplicated_share <= thresholds.duplicated_share_max:
        return None
    return Diagnosis(DUPLICATED_ROWS, f"{figures.duplicated} of {figures.live} rows repeat another row exactly.")


def _low_rank(figures: Figures, thresholds: HealthThresholds) -> Diagnosis | None:
    judged = [own for own in figures.types if own.judged]
    thin = [own for own in judged if narrow(own, thresholds)]
    rich = [own.effective_rank for own in judged if own not in thin]
    whole = low_rank(figures, thresholds)
    stands_out = bool(thin and rich) and np.mean(rich) >= RANK_CONTRAST * np.mean([own.effective_rank for own in thin])
    if stands_out or (thin and len(judged) > 1 and not whole):
        shown = ", ".join(f"'{own.name}' (effective rank {own.effective_rank:.1f})" for own in thin)
        return Diagnosis(COLLAPSED_TYPE, f"The rows of a type vary in few directions only: {shown}.")
    if thin or whole:
        return Diagnosis(
            SUBSPACE,
            f"{figures.components_90} of {figures.available} possible components hold 90 % of the variance; "
            f"effective rank {figures.effective_rank:.1f}.",
        )
    return None


def _tight_types(figures: Figures, thresholds: HealthThresholds) -> Diagnosis | None:
    """Types over the bound that do not stand out from the others by much: still theirs to name."""
    tight = [own for own in figures.types if at_a_point(own, thresholds)]
    if not tight:
        return None
    return Diagnosis(
        COLLAPSED_TYPE,
        "Mean cosine within type " + ", ".join(f"'{own.name}' ({own.cosine:.2f})" for own in tight) + ".",
    )


def _crowded(figures: Figures, thresholds: HealthThresholds) -> Diagnosis | None:
    """Concentrated although neither the mean cosine nor the rank shows it: a cone is the nearest name."""
    if figures.uniformity.value <= thresholds.uniformity_max:
        return None
    return Diagnosis(CONE, f"The rows crowd on the sphere: uniformity {figures.uniformity.value:.2f}.")


def _shuffled(thresholds: HealthThresholds, link_signal: float) -> Diagnosis | None:
    if not link_signal < thresholds.link_signal_min:  # nan: no ranking, nothing to say
        return None
    return Diagnosis(
        SHUFFLED_IDS,
        f"The vectors are healthy, but held-out links rank as by chance (mean |AMRI| {link_signal:.2f}): "
        "vectors and ids do not belong together, or nothing was learned.",
    )
