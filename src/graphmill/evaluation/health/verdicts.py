"""One verdict per figure: the value, its bound, whether it holds, and what to think of it if not.

A verdict says what one figure means by itself; :mod:`.diagnosis` puts them together into one name.
Every failing verdict belongs to some named failure, and a report without a failing verdict has no failure.
"""

import math
from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

from graphmill.evaluation.health.diagnosis import at_a_point, narrow
from graphmill.evaluation.health.figures import Figures, TypeFigures
from graphmill.evaluation.health.remedies import remedy_of
from graphmill.evaluation.health.thresholds import (
    HealthThresholds,
    components_90_needed,
    participation_needed,
    type_rank_needed,
)

Status = Literal["pass", "warn", "fail"]


@dataclass(frozen=True)
class Verdict:
    """``name`` is the figure's; ``threshold`` is the bound in force (already relative to small embeddings).

    ``meaning`` is one sentence on what the figure says at this status; ``remedy`` what to do, "" where it passes.
    """

    name: str
    value: float
    threshold: float
    status: Status
    meaning: str
    remedy: str


def verdicts_of(
    figures: Figures,
    thresholds: HealthThresholds,
    disease_type: str,
    link_signal: float,
    settings: Collection[str] | None = None,
) -> tuple[Verdict, ...]:
    """All verdicts, those on rows first. ``link_signal`` is nan without a ranking, which leaves its verdict out.

    ``settings``: names of the settings that the remedies may speak of; None: all.
    """
    verdicts = [
        *_on_rows(figures, thresholds, settings),
        *_on_similarity(figures, thresholds, settings),
        *_on_spectrum(figures, thresholds, settings),
        *_on_types(figures, thresholds),
    ]
    disease = next((own for own in figures.types if own.name == disease_type and own.judged), None)
    if disease is not None:
        verdicts.append(_on_disease(disease, thresholds, settings))
    if not math.isnan(link_signal):
        verdicts.append(_on_links(link_signal, thresholds))
    return tuple(verdicts)


def _verdict(
    name: str, value: float, threshold: float, breach: Status, holds: bool, good: str, bad: str, remedy: str
) -> Verdict:
    return Verdict(name, value, threshold, "pass" if holds else breach, good if holds else bad, "" if holds else remedy)


def _on_rows(figures: Figures, thresholds: HealthThresholds, settings: Collection[str] | None) -> list[Verdict]:
    repeated = _verdict(
        "duplicated_share",
        figures.duplicated_share,
        thresholds.duplicated_share_max,
        "fail",
        figures.duplicated_share <= thresholds.duplicated_share_max,
        "No row repeats another.",
        "Rows repeat other rows bit for bit: those nodes cannot be told apart.",
        "Look for nodes without edges or features, a clamped id, or one block written twice.",
    )
    if figures.duplicated and repeated.status == "pass":
        repeated = Verdict(
            repeated.name,
            repeated.value,
            repeated.threshold,
            "warn",
            f"{figures.duplicated} rows repeat another row bit for bit, fewer than the bound.",
            "Look at these nodes: without edges or features they get what everything like them gets.",
        )
    return [
        _verdict(
            "non_finite_rows",
            figures.non_finite,
            0,
            "fail",
            figures.non_finite == 0,
            "Every number is finite.",
            "Rows hold NaN or infinity: the training diverged, or the file is damaged.",
            "Lower learning_rate, or use precision fp32 or bf16; on_nonfinite: stop names the batch.",
        ),
        _verdict(
            "dead_rows",
            figures.dead,
            thresholds.dead_rows_max,
            "fail",
            figures.dead <= thresholds.dead_rows_max and figures.live >= 2,
            "No row is zero.",
            "Rows are zero or vanish beside the others: every similarity to those nodes is noise.",
            "Look for nodes that no message reaches and types without features; drop isolated nodes or connect them.",
        ),
        repeated,
        _verdict(
            "norm_spread",
            figures.norm_spread,
            thresholds.norm_spread_max,
            "warn",
            figures.norm_spread <= thresholds.norm_spread_max,
            "The rows have comparable lengths.",
            "A few rows are far longer than the rest: hubs win every dot product.",
            remedy_of(
                "compare by cosine",
                "turn output_norm on",
                "raise weight_decay",
                "raise regularisation",
                settings=settings,
            ),
        ),
    ]


def _on_similarity(figures: Figures, thresholds: HealthThresholds, settings: Collection[str] | None) -> list[Verdict]:
    cosine, uniformity = figures.cosines.overall, figures.uniformity.value
    return [
        _verdict(
            "mean_cosine",
            cosine,
            thresholds.mean_cosine_max,
            "fail",
            cosine <= thresholds.mean_cosine_max,
            "Two random rows point in different directions.",
            "Two random rows point the same way: similarities say little beyond this common direction.",
            remedy_of(
                "raise contrastive_weight",
                "raise negatives_per_positive",
                "lower weight_decay",
                "lower num_layers",
                "compare after taking the mean row off",
                settings=settings,
            ),
        ),
        _verdict(
            "uniformity",
            uniformity,
            thresholds.uniformity_max,
            "fail",
            uniformity <= thresholds.uniformity_max,
            "The rows spread over the sphere.",
            "The rows crowd into a small part of the sphere.",
            remedy_of("raise contrastive_weight", "raise negatives_per_positive", "train longer", settings=settings),
        ),
        _verdict(
            "rogue_share",
            figures.rogue.share,
            thresholds.rogue_share_max,
            "fail",
            figures.rogue.share <= thresholds.rogue_share_max,
            "No single dimension decides the similarities.",
            "One to three dimensions decide every similarity, and the information of the others drowns.",
            remedy_of(
                "turn layer_norm on",
                "standardise the dimensions before comparing",
                "check the scales of input features",
                settings=settings,
            ),
        ),
    ]


def _on_spectrum(figures: Figures, thresholds: HealthThresholds, settings: Collection[str] | None) -> list[Verdict]:
    wider = remedy_of(
        "raise hidden_dim",
        "train longer",
        "lower weight_decay",
        "lower regularisation",
        "raise contrastive_weight",
        settings=settings,
    )
    rows: list[tuple[str, float, float, str, str]] = [
        (
            "components_90",
            figures.components_90,
            components_90_needed(thresholds, figures.available),
            "Many components share the variance.",
            "A few components hold 90 % of the variance: most of the width is unused.",
        ),
        (
            "effective_rank_share",
            figures.share(figures.effective_rank),
            thresholds.effective_rank_share_min,
            "The singular values spread over the dimensions.",
            "The singular values concentrate on few directions: the rows live in a subspace.",
        ),
        (
            "participation_uncentred",
            figures.participation_uncentred,
            participation_needed(thresholds, figures.available),
            "No single direction, the mean included, dominates.",
            "One or two directions, the mean included, carry nearly everything.",
        ),
        (
            "participation_share",
            figures.share(figures.participation_centred),
            thresholds.participation_share_min,
            "The variance is not confined to a few directions.",
            "The variance is confined to a few directions.",
        ),
    ]
    return [
        _verdict(name, value, bound, "fail", value >= bound, good, bad, wider) for name, value, bound, good, bad in rows
    ]


def _on_types(figures: Figures, thresholds: HealthThresholds) -> list[Verdict]:
    judged = [own for own in figures.types if own.judged]
    if not judged:
        return []
    tightest = max(judged, key=lambda own: own.cosine)
    thinnest = min(judged, key=lambda own: own.effective_rank / type_rank_needed(thresholds, own.available))
    flattest = max(judged, key=lambda own: own.top1_ratio)
    apart = "Train longer on the relations of this type, give it features, or raise supervision for it."
    verdicts = [
        _verdict(
            "type_cosine",
            tightest.cosine,
            thresholds.type_cosine_max,
            "fail",
            not at_a_point(tightest, thresholds),
            "Within every type the rows differ.",
            f"The rows of type '{tightest.name}' are practically the same.",
            apart,
        ),
        _verdict(
            "type_rank_share",
            thinnest.rank_share,
            type_rank_needed(thresholds, thinnest.available) / thinnest.available,
            "fail",
            not narrow(thinnest, thresholds),
            "Every type varies in many directions.",
            f"The rows of type '{thinnest.name}' vary in few directions only.",
            apart,
        ),
        _verdict(
            "type_top1_ratio",
            flattest.top1_ratio,
            thresholds.type_top1_max,
            "warn",
            flattest.top1_ratio <= thresholds.type_top1_max,
            "No type lies on a line.",
            f"More than half of the variance of type '{flattest.name}' lies on one line.",
            "See what the line is (often the degree): colour the PCA picture by it.",
        ),
    ]
    separation = figures.cosines.separation
    if not math.isnan(separation):
        verdicts.append(
            _verdict(
                "type_separation",
                separation,
                thresholds.type_separation_min,
                "warn",
                separation >= thresholds.type_separation_min,
                "Rows of one type are closer to each other than to other types.",
                "Types do not differ: rows of one type are no closer to each other than to any other row.",
                "This need not be wrong; it is if types should be recognisable. Train longer, or check the node types.",
            )
        )
    return verdicts


def _on_disease(disease: TypeFigures, thresholds: HealthThresholds, settings: Collection[str] | None) -> Verdict:
    """The band's upper end alone would punish a tight but rich type, so a failure needs a low rank, too."""
    low, high = thresholds.disease_cosine_low, thresholds.disease_cosine_high
    band = f"mean cosine {disease.cosine:.2f}, band {low:g} to {high:g}"
    remedy = remedy_of(
        "raise similarity_threshold so that fewer diseases attract each other",
        "lower contrastive_weight",
        "see the disease rows in the PCA picture",
        settings=settings,
    )
    if disease.cosine <= high:
        place = "in" if disease.cosine >= low else "below (more spread than)"
        return Verdict("disease_cosine", disease.cosine, high, "pass", f"Diseases lie {place} the band: {band}.", "")
    if narrow(disease, thresholds):
        meaning = (
            f"Diseases are too alike and vary in few directions: {band}, effective rank {disease.effective_rank:.1f}."
        )
        return Verdict("disease_cosine", disease.cosine, high, "fail", meaning, remedy)
    meaning = f"Diseases are more alike than usual but still vary in many directions: {band}."
    return Verdict("disease_cosine", disease.cosine, high, "warn", meaning, remedy)


def _on_links(link_signal: float, thresholds: HealthThresholds) -> Verdict:
    return _verdict(
        "link_signal",
        link_signal,
        thresholds.link_signal_min,
        "fail",
        link_signal >= thresholds.link_signal_min,
        "Held-out links rank better than chance: vectors and ids belong together.",
        "Held-out links rank as by chance.",
        "Compare node ids and row order with the graph that was trained on; if they agree, train longer.",
    )
