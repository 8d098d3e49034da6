"""Checks of each node type alone."""

from graphmill.evaluation.health.check import CheckInput, Group, HealthCheck, Outcome, Threshold
from graphmill.evaluation.health.direction_bounds import at_a_point, narrow, type_rank_needed
from graphmill.evaluation.health.figures import TypeFigures

VARY = Group(
    "types_vary",
    "Vectors vary within every node type. If not, see `by_type`.",
    picture="pca",
)
APART = "Train longer on the relations of this type, give it features, or raise supervision for it."


def _with_enough_rows(e: CheckInput) -> list[TypeFigures]:
    return [each for each in e.figures.types if each.judged]


def _cosine(e: CheckInput) -> Outcome | None:
    if not (types := _with_enough_rows(e)):
        return None
    kind = max(types, key=lambda kind: kind.cosine)
    return COSINE.outcome(kind.cosine, e.thresholds.type_cosine_max, not at_a_point(kind, e.thresholds), type=kind.name)


def _rank(e: CheckInput) -> Outcome | None:
    if not (types := _with_enough_rows(e)):
        return None
    kind = min(types, key=lambda kind: kind.effective_rank / type_rank_needed(e.thresholds, kind.available))
    bound = type_rank_needed(e.thresholds, kind.available) / kind.available
    return RANK.outcome(kind.rank_share, bound, not narrow(kind, e.thresholds), type=kind.name)


_POINT = "Mean cosine within one node type; above it, the type has collapsed to a point."
COSINE = HealthCheck(
    name="type_cosine",
    group=VARY,
    what="the largest mean cosine within a type",
    thresholds=(Threshold("type_cosine_max", 0.9, _POINT, gt=0, le=1),),
    judge=_cosine,
    good="Within every type the rows differ.",
    bad="The rows of type '{type}' are nearly the same.",
    remedy=APART,
)
_SHARE = "Effective rank within one type, as a share of the dimensions; below it, the type has collapsed."
_NUMBER = "The same as a number; the check asks for at most 30 % of the dimensions that the type's rows can fill."
RANK = HealthCheck(
    name="type_rank_share",
    group=VARY,
    what="the smallest effective rank within a type, over its available dimensions",
    thresholds=(
        Threshold("type_rank_share_min", 0.05, _SHARE, ge=0, le=1),
        Threshold("type_rank_min", 3.0, _NUMBER, ge=1),
    ),
    judge=_rank,
    good="Every type varies in many directions.",
    bad="The rows of type '{type}' vary only in few directions.",
    remedy=APART,
)
CHECKS = (COSINE, RANK)
