"""All health checks, in the order of reports, with their thresholds and the bounds of the number of directions."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, cast

from pydantic import create_model

from graphmill.evaluation.health.check import (
    CheckInput,
    Group,
    HealthCheck,
    Threshold,
    Verdict,
)
from graphmill.settings import Settings, setting

if TYPE_CHECKING:
    from graphmill.evaluation.health.figures import TypeFigures

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


# -- single rows: not finite, zero, repeated, or too long -----------------------------------------------------------------

SOUND = Group(
    "rows_are_sound",
    "No row is missing, zero, repeated, or far longer than the rest. If some are, the message says why.",
)


def _duplicated(e: CheckInput) -> Verdict:
    share, most, rows = e.figures.duplicated_share, e.thresholds.duplicated_share_max, e.figures.duplicated
    if rows and share <= most:
        counted = "1 row repeats" if rows == 1 else f"{rows} rows repeat"
        said = f"{counted} another row bit for bit: a warning, as they are at most {100 * most:g} % of all."
        remedy = "Look at these nodes: nodes without edges or features all get the same vector."
        return Verdict(DUPLICATED.name, share, most, "warn", said, remedy)
    return DUPLICATED.outcome(share, most, share <= most)


NON_FINITE = HealthCheck(
    name="non_finite_rows",
    group=SOUND,
    what="rows with NaN or infinity",
    bound="0",
    figure=lambda e: e.figures.non_finite,
    needed=lambda e: 0,
    good="Every number is finite.",
    bad="Rows hold NaN or infinity: the training diverged, or the file is damaged.",
    remedy="Lower learning_rate, or use precision fp32 or bf16.",
)
DEAD = HealthCheck(
    name="dead_rows",
    group=SOUND,
    what="rows that are zero or vanishingly small, but those of nodes without a training edge",
    thresholds=(Threshold("dead_rows_max", 0, "Number of rows that may be zero (or vanishingly small).", ge=0),),
    figure=lambda e: e.figures.dead,
    good="No row is zero, but those of nodes without a training edge.",
    bad="Rows are zero or vanishingly small: every similarity to those nodes is noise.",
    remedy="Look for nodes that no message reaches and types without features; drop isolated nodes or connect them.",
)
_REPEATED = "Share of rows that may repeat another row exactly; any such row is a warning."
DUPLICATED = HealthCheck(
    name="duplicated_share",
    group=SOUND,
    what="share of rows that repeat an earlier one exactly, but those of nodes with the same training neighbours",
    thresholds=(Threshold("duplicated_share_max", 0.01, _REPEATED, ge=0, le=1),),
    bound="{duplicated_share_max}; any repeated row is a warning",
    judge=_duplicated,
    good="No row repeats another, but where the training neighbours are the same.",
    bad="Rows repeat other rows bit for bit: those nodes cannot be distinguished.",
    remedy="Look for nodes without edges or features, a clipped id, or a block that was written twice.",
)
_SPREAD = "Standard deviation of the row norms divided by their mean; above it, hubs are inflated (warning)."
NORM_SPREAD = HealthCheck(
    name="norm_spread",
    group=SOUND,
    what="standard deviation of the row norms divided by their mean",
    thresholds=(Threshold("norm_spread_max", 1.0, _SPREAD, gt=0),),
    figure=lambda e: e.figures.norm_spread,
    good="The rows have comparable lengths.",
    bad="A few rows are far longer than the rest: hubs win every dot product.",
    breach="warn",
    breaking="warn: hubs win every dot product; compare by cosine",
    remedy=("compare by cosine", "raise weight_decay", "raise regularisation"),
)


# -- similarity of random rows ------------------------------------------------------------------------------------------

DIRECTION = Group(
    "mean_cosine",
    "Two random rows point in different directions. If they do not, the message says what to change.",
    picture="cosines",
)
_CONE = "Mean cosine of two different rows; above it, all rows share a direction (cone)."
_ONE = "Mean cosine from which a cone is called a complete collapse."

MEAN_COSINE = HealthCheck(
    name="mean_cosine",
    group=DIRECTION,
    what="mean cosine of two different rows, exact: (‖Σu‖² − n)/(n(n − 1))",
    thresholds=(
        Threshold("mean_cosine_max", 0.5, _CONE, gt=0, lt=1),
        Threshold("complete_cosine_min", 0.95, _ONE, gt=0, lt=1),
    ),
    bound="{mean_cosine_max}; from {complete_cosine_min} on it is a complete collapse",
    figure=lambda e: e.figures.mean_cosine,
    good="Two random rows point in different directions.",
    bad="Two random rows point in the same direction: similarities say little beyond this common direction.",
    remedy=(
        *("subtract the mean row before comparing", "raise contrastive_weight", "raise negatives_per_positive"),
        *("lower weight_decay", "lower num_layers"),
    ),
)


# -- number of directions that the rows use -------------------------------------------------------------------------------

VARIANCE = Group(
    "pca_variance",
    "Many principal components share the variance. If a few have nearly all of it, the message says what to change.",
    picture="spectrum",
)
WIDER = ("raise hidden_dim", "train longer", "lower weight_decay", "lower regularisation", "raise contrastive_weight")
_COMPONENTS = "Principal components for 90 % of the variance; the check asks for at most 30 % of the dimensions."
_COMPONENTS_SHARE = "The same number as a share of the dimensions; below it, the rows lie in a subspace."
_RANK = "Effective rank (RankMe, centred) as a share of the dimensions; below it, the rows lie in a subspace."

COMPONENTS_90 = HealthCheck(
    name="components_90",
    group=VARIANCE,
    what="principal components for 90 % of the variance, centred",
    thresholds=(
        Threshold("components_90_min", 15, _COMPONENTS, ge=1),
        Threshold("components_90_share_min", 0.04, _COMPONENTS_SHARE, ge=0, le=1),
    ),
    bound="{components_90_min} and {components_90_share_min} of the available dimensions",
    figure=lambda e: e.figures.components_90,
    needed=lambda e: components_90_needed(e.thresholds, e.figures.available),
    good="Many components share the variance.",
    bad="A few components hold 90 % of the variance: most of the width is unused.",
    remedy=WIDER,
)
EFFECTIVE_RANK = HealthCheck(
    name="effective_rank_share",
    group=VARIANCE,
    what="`effective_rank`, exp of the entropy of the singular values (RankMe, arXiv 2210.02885), centred, as a share "
    "of the available dimensions",
    thresholds=(Threshold("effective_rank_share_min", 0.1, _RANK, ge=0, le=1),),
    figure=lambda e: e.figures.share(e.figures.effective_rank),
    good="The singular values spread over the dimensions.",
    bad="The singular values concentrate on few directions: the rows lie in a subspace.",
    remedy=WIDER,
)


# -- each node type alone -------------------------------------------------------------------------------------------------

VARY = Group(
    "types_vary",
    "Vectors vary within every node type. If not, see `by_type`.",
    picture="pca",
)
APART = "Train longer on the relations of this type, give it features, or raise supervision for it."


def _type_cosine(e: CheckInput) -> Verdict | None:
    bound = e.thresholds.type_cosine_max
    kind = max((each for each in e.figures.types if each.judged), key=lambda kind: kind.cosine, default=None)
    return TYPE_COSINE.outcome(kind.cosine, bound, kind.cosine <= bound, type=kind.name) if kind else None


def _type_rank(e: CheckInput) -> Verdict | None:
    def needed(kind: TypeFigures) -> float:
        return type_rank_needed(e.thresholds, kind.available)

    judged = (each for each in e.figures.types if each.judged)
    kind = min(judged, key=lambda kind: kind.effective_rank / needed(kind), default=None)
    if kind is None:
        return None
    holds = kind.effective_rank >= needed(kind)
    return TYPE_RANK.outcome(kind.rank_share, needed(kind) / kind.available, holds, type=kind.name)


_POINT = "Mean cosine within one node type; above it, the type has collapsed to a point."
TYPE_COSINE = HealthCheck(
    name="type_cosine",
    group=VARY,
    what="the largest mean cosine within a type",
    thresholds=(Threshold("type_cosine_max", 0.9, _POINT, gt=0, le=1),),
    judge=_type_cosine,
    good="Within every type the rows differ.",
    bad="The rows of type '{type}' are nearly the same.",
    remedy=APART,
)
_SHARE = "Effective rank within one type, as a share of the dimensions; below it, the type has collapsed."
_NUMBER = "The same as a number; the check asks for at most 30 % of the dimensions that the type's rows can fill."
TYPE_RANK = HealthCheck(
    name="type_rank_share",
    group=VARY,
    what="the smallest effective rank within a type, over its available dimensions",
    thresholds=(
        Threshold("type_rank_share_min", 0.05, _SHARE, ge=0, le=1),
        Threshold("type_rank_min", 3.0, _NUMBER, ge=1),
    ),
    judge=_type_rank,
    good="Every type varies in many directions.",
    bad="The rows of type '{type}' vary only in few directions.",
    remedy=APART,
)


# -- vectors and their ids ------------------------------------------------------------------------------------------------

FIT = Group(
    "ids_fit_links",
    "Held-out links rank better than chance by cosine. If not: ids and vectors are mixed up, or the model learnt "
    "nothing.",
    absent="the graph holds out no links, or too few to tell",
)
_SIGNAL = "Mean |AMRI| of the held-out link ranking; below it, vectors and ids do not belong together."

LINK_SIGNAL = HealthCheck(
    name="link_signal",
    group=FIT,
    what="mean absolute AMRI of the link ranking, weighted by queries, over relations with at least 30 queries",
    thresholds=(Threshold("link_signal_min", 0.1, _SIGNAL, ge=0, lt=1),),
    figure=lambda e: None if math.isnan(e.link_signal) else e.link_signal,
    good="Held-out links rank better than chance: vectors and ids belong together.",
    bad="Held-out links rank no better than by chance.",
    remedy="Compare node ids and row order with the graph that was trained on; if they agree, train longer.",
)
CHECKS: tuple[HealthCheck, ...] = (
    *(NON_FINITE, DEAD, DUPLICATED, NORM_SPREAD),
    *(MEAN_COSINE, COMPONENTS_90, EFFECTIVE_RANK),
    *(TYPE_COSINE, TYPE_RANK, LINK_SIGNAL),
)
GROUPS = (DIRECTION, VARIANCE, VARY, SOUND, FIT)
"""The checks of the validation asset."""

_FIELDS: dict[str, Any] = {
    each.name: (type(each.default), setting(each.default, each.text, **each.bounds))
    for check in CHECKS
    for each in check.thresholds
}
_OfChecks: Any = cast(Any, create_model("Thresholds", __base__=Settings, **_FIELDS))


class HealthThresholds(_OfChecks):
    """Bounds of :func:`graphmill.evaluation.health.report.health_report`. A figure exactly at its bound passes."""

    type_rows_min: int = setting(30, "Types with fewer rows are shown but not judged.", ge=3)
