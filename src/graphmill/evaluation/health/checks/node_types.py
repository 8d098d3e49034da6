"""Checks of each node type by itself, and of types beside each other."""

import math

from graphmill.evaluation.health.check import Evidence, Group, HealthCheck, Outcome, Threshold, judged
from graphmill.evaluation.health.figures import TypeFigures
from graphmill.evaluation.health.needed import at_a_point, narrow, type_rank_needed

VARY = Group("types_vary", "Every node type varies inside, and types differ from each other.", picture="pca")
DISEASES = Group(
    "disease_band",
    "Diseases are not too alike; the usual band of their mean cosine is shown.",
    absent="the graph has no node type 'disease' with enough rows",
    of_items=False,
)
APART = "Train longer on the relations of this type, give it features, or raise supervision for it."


def _with_enough_rows(e: Evidence) -> list[TypeFigures]:
    return [own for own in e.figures.types if own.judged]


def _type_cosine(e: Evidence) -> Outcome | None:
    tightest = max(_with_enough_rows(e), key=lambda own: own.cosine, default=None)
    if tightest is None:
        return None
    return judged(
        tightest.cosine,
        e.thresholds.type_cosine_max,
        not at_a_point(tightest, e.thresholds),
        "Within every type the rows differ.",
        f"The rows of type '{tightest.name}' are practically the same.",
    )


def _type_rank(e: Evidence) -> Outcome | None:
    def over_needed(own: TypeFigures) -> float:
        return own.effective_rank / type_rank_needed(e.thresholds, own.available)

    thinnest = min(_with_enough_rows(e), key=over_needed, default=None)
    if thinnest is None:
        return None
    return judged(
        thinnest.rank_share,
        type_rank_needed(e.thresholds, thinnest.available) / thinnest.available,
        not narrow(thinnest, e.thresholds),
        "Every type varies in many directions.",
        f"The rows of type '{thinnest.name}' vary in few directions only.",
    )


def _type_top1(e: Evidence) -> Outcome | None:
    flattest = max(_with_enough_rows(e), key=lambda own: own.top1_ratio, default=None)
    if flattest is None:
        return None
    return judged(
        flattest.top1_ratio,
        e.thresholds.type_top1_max,
        flattest.top1_ratio <= e.thresholds.type_top1_max,
        "No type lies on a line.",
        f"More than half of the variance of type '{flattest.name}' lies on one line.",
        "warn",
    )


def _separation(e: Evidence) -> Outcome | None:
    separation, least = e.figures.cosines.separation, e.thresholds.type_separation_min
    if math.isnan(separation) or not _with_enough_rows(e):
        return None
    return judged(
        separation,
        least,
        separation >= least,
        "Rows of one type are closer to each other than to other types.",
        "Types do not differ: rows of one type are no closer to each other than to any other row.",
        "warn",
    )


def _diseases(e: Evidence) -> Outcome | None:
    """The band's upper end alone would punish a tight but rich type, so a failure needs a low rank, too."""
    own = next((own for own in _with_enough_rows(e) if own.name == e.disease_type), None)
    if own is None:
        return None
    low, high = e.thresholds.disease_cosine_low, e.thresholds.disease_cosine_high
    band = f"mean cosine {own.cosine:.2f}, band {low:g} to {high:g}"
    if own.cosine <= high:
        place = "in" if own.cosine >= low else "below (more spread than)"
        return Outcome(own.cosine, high, "pass", f"Diseases lie {place} the band: {band}.")
    if narrow(own, e.thresholds):
        few = f"Diseases are too alike and vary in few directions: {band}, effective rank {own.effective_rank:.1f}."
        return Outcome(own.cosine, high, "fail", few)
    return Outcome(
        own.cosine, high, "warn", f"Diseases are more alike than usual but still vary in many directions: {band}."
    )


CHECKS = (
    HealthCheck(
        name="type_cosine",
        group=VARY,
        what="the largest mean cosine within a type",
        thresholds=(
            Threshold(
                "type_cosine_max",
                0.9,
                "Mean cosine within one node type; above, the type has collapsed to a point.",
                figure="cosine",
                per_type=True,
                gt=0,
                le=1,
            ),
        ),
        judge=_type_cosine,
        remedy=APART,
    ),
    HealthCheck(
        name="type_rank_share",
        group=VARY,
        what="the smallest effective rank within a type, over its available dimensions",
        thresholds=(
            Threshold(
                "type_rank_share_min",
                0.05,
                "Effective rank within one type, share of the dimensions; below, it has collapsed.",
                figure="rank_share",
                per_type=True,
                ge=0,
                le=1,
            ),
            Threshold(
                "type_rank_min",
                3.0,
                "The same as a number; at most 30 % of the dimensions that the type's rows can fill are asked for.",
                figure="effective_rank",
                per_type=True,
                ge=1,
            ),
        ),
        judge=_type_rank,
        remedy=APART,
    ),
    HealthCheck(
        name="type_top1_ratio",
        group=VARY,
        what="the largest first-component share within a type",
        thresholds=(
            Threshold(
                "type_top1_max",
                0.5,
                "Share of a type's variance on its first component; above, it is nearly a line (warning).",
                figure="top1_ratio",
                per_type=True,
                gt=0,
                le=1,
            ),
        ),
        breaking="warn: often the line is the degree",
        judge=_type_top1,
        remedy="See what the line is (often the degree): colour the PCA picture by it.",
    ),
    HealthCheck(
        name="type_separation",
        group=VARY,
        what="mean cosine of pairs of the same type (`within_type_cosine`) less that of different types "
        "(`between_type_cosine`), ANOSIM's difference (Clarke 1993) on cosines",
        thresholds=(
            Threshold(
                "type_separation_min",
                0.01,
                "Mean cosine within types less that between types; below, types do not differ (warning).",
                figure="type_separation",
                ge=-1,
                le=1,
            ),
        ),
        breaking="warn: need not be wrong",
        judge=_separation,
        remedy="This need not be wrong; it is if types should be recognisable. Train longer, or check the node types.",
    ),
    HealthCheck(
        name="disease_cosine",
        group=DISEASES,
        what="mean cosine within the disease type, where the graph has one",
        thresholds=(
            Threshold(
                "disease_cosine_low",
                0.5,
                "Lower end of the band shown for the disease type's mean cosine; not judged.",
                ge=-1,
                le=1,
            ),
            Threshold(
                "disease_cosine_high",
                0.8,
                "Upper end of that band, judged together with the type's effective rank.",
                ge=-1,
                le=1,
            ),
        ),
        bound="the band {disease_cosine_low} to {disease_cosine_high} is shown; above it is a warning, and a failure only "
        "if the type's rank is low, too. Below the band is more spread and passes",
        breaking="warn, fail",
        judge=_diseases,
        remedy=(
            "raise similarity_threshold so that fewer diseases attract each other",
            "lower contrastive_weight",
            "see the disease rows in the PCA picture",
        ),
    ),
)
