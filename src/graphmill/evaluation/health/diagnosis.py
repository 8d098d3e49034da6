"""Names the kind of collapse of a failing embedding.

Several bounds usually break at once (a complete collapse is also a cone). The name is the most specific cause
that explains them.
"""

from collections.abc import Iterator

import numpy as np

from graphmill.evaluation.health.checks import HealthThresholds, at_a_point, low_rank, narrow
from graphmill.evaluation.health.figures import Figures, TypeFigures

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
FAILURES: dict[str, tuple[str, str]] = {
    NON_FINITE: (
        "some rows hold NaN or infinity; the message says how many of each type",
        "The training diverged, or the file is damaged. Lower `learning_rate`, or use precision `fp32` or `bf16` "
        "instead of `fp16`",
    ),
    DEAD_ROWS: (
        "some rows are zero, or a million times smaller than the others",
        "No message reaches these nodes, or their type has no features. Drop isolated nodes, or give the type an "
        "embedding or features",
    ),
    COMPLETE_COLLAPSE: (
        "all rows are nearly one vector: mean cosine ≥ 0.95, and little is left once their mean is subtracted",
        "There are too few negatives, or there is too much smoothing. Raise "
        "`negatives_per_positive` or `contrastive_weight` (HGT: with loss `link_contrastive`), use fewer layers, or lower "
        "`weight_decay`. More epochs do not help",
    ),
    CONE: (
        "all rows share a direction: mean cosine above 0.5; what is left without it is sound",
        "Subtract the mean row before comparing. In training: the causes of a complete collapse, to a smaller degree",
    ),
    SUBSPACE: (
        "the rows use few of the dimensions, although the mean cosine is 0",
        "Raise `hidden_dim`, train for more steps, or lower `weight_decay`. If the dimension is only larger than the "
        "graph needs, this does no harm; you can lower `embedding_dim`",
    ),
    TYPE_ONLY: (
        "the vectors of each node type are one point",
        "The model learned only to distinguish types. Use more negatives of the same type, and check that "
        "supervision edges do not carry messages",
    ),
    COLLAPSED_TYPE: (
        "some types are a point, or vary in only one or two directions; the message says which",
        "The type has few or no training links. Give it features, more supervision, or more relations",
    ),
    ROGUE_DIMENSION: (
        "one to three dimensions (named, counted from 0) carry most of the variance or of the mean cosine",
        "One feature has another scale and is not normalised. Standardise the dimensions before comparing",
    ),
    DUPLICATED_ROWS: (
        "some rows are bit for bit equal to others",
        "Nodes without links or features all get the same vector; or an id was clipped; or a block was written twice",
    ),
    SHUFFLED_IDS: (
        "the geometry is sound, but held-out links rank no better than by chance",
        "Rows and ids have different orders, or the model learned nothing. Compare the ids with the graph's node "
        "table; if they agree, train longer",
    ),
}
"""Name → the symptom, and the usual causes with what to do; the table of docs/reference/checks.md."""

#: A collapsed type is named only if its rows are this much closer to each other than those of the other types.
TYPE_CONTRAST = 0.2
#: A narrow type is named only if the others have at least this many times its effective rank.
RANK_CONTRAST = 2.0
#: Rows that differ from their mean by less than this share of their length are one vector and rounding.
SPREAD_MIN = 0.01


def diagnose(figures: Figures, thresholds: HealthThresholds, link_signal: float) -> tuple[str, str]:
    """The most specific name of the failure, of :data:`FAILURES`, and one sentence on it and its place; "" if healthy.

    ``link_signal``: mean |AMRI| of the link ranking, nan without one.
    """
    return next(_failures(figures, thresholds, link_signal), ("", ""))


def _failures(figures: Figures, thresholds: HealthThresholds, link_signal: float) -> Iterator[tuple[str, str]]:
    """All failures that the figures show, the most specific first."""
    cosine, rogue = figures.cosines.overall, figures.rogue
    if count := figures.non_finite:
        yield NON_FINITE, f"{count} of {figures.rows} rows hold NaN or infinity{_where(figures, 0)}."
    if figures.live < 2:
        yield COMPLETE_COLLAPSE, f"Only {figures.live} of {figures.rows} rows are not zero."
    if figures.dead > thresholds.dead_rows_max:
        yield DEAD_ROWS, f"{figures.dead} of {figures.rows} rows are zero{_where(figures, 1)}."
    yield from _types_at_a_point(figures, thresholds)
    if cosine >= thresholds.complete_cosine_min and (low_rank(figures, thresholds) or 1 - cosine < SPREAD_MIN**2):
        yield COMPLETE_COLLAPSE, f"All rows are nearly the same: mean cosine {cosine:.3f}."
    if rogue.share > thresholds.rogue_share_max:
        what = "variance" if rogue.variance_share >= rogue.cosine_share else "mean cosine"
        which = ", ".join(str(dimension) for dimension in rogue.dimensions)
        yield ROGUE_DIMENSION, f"Dimension {which} (from 0) carries {rogue.share:.0%} of the {what}."
    if cosine > thresholds.mean_cosine_max:
        left = f"effective rank {figures.effective_rank:.0f} of {figures.available} once their mean is subtracted"
        yield CONE, f"All rows share a direction: mean cosine {cosine:.2f}; {left}."
    if figures.duplicated_share > thresholds.duplicated_share_max:
        yield DUPLICATED_ROWS, f"{figures.duplicated} of {figures.live} rows repeat another row exactly."
    yield from _low_rank(figures, thresholds)
    # Types above the bound, even if they do not differ much from the others.
    if tight := [each for each in figures.types if at_a_point(each, thresholds)]:
        yield COLLAPSED_TYPE, f"Mean cosine within type {_cosines(tight)}."
    if link_signal < thresholds.link_signal_min:  # never with nan, without a ranking
        yield (
            SHUFFLED_IDS,
            "The vectors are healthy, but held-out links rank no better than by chance (mean |AMRI| "
            f"{link_signal:.2f}): vectors and ids do not belong together, or the model learned nothing.",
        )


def _where(figures: Figures, kind: int) -> str:
    hit = {name: counts[kind] for name, counts in figures.broken_by_type.items() if counts[kind]}
    displayed = ", ".join(f"{name}: {count}" for name, count in sorted(hit.items(), key=lambda item: -item[1])[:5])
    return f" ({displayed})" if displayed else ""


def _cosines(types: list[TypeFigures]) -> str:
    return ", ".join(f"'{each.name}' ({each.cosine:.2f})" for each in types)


def _types_at_a_point(figures: Figures, thresholds: HealthThresholds) -> Iterator[tuple[str, str]]:
    judged = [each for each in figures.types if each.judged]
    collapsed = [each for each in judged if at_a_point(each, thresholds)]
    rest = [each.cosine for each in judged if each not in collapsed]
    if rest and (sharp := [each for each in collapsed if each.cosine - np.mean(rest) >= TYPE_CONTRAST]):
        displayed = f"{_cosines(sharp)}; {np.mean(rest):.2f} in the other types"
        yield COLLAPSED_TYPE, f"Mean cosine within type {displayed}."
    if len(judged) > 1 and not rest and figures.cosines.separation >= TYPE_CONTRAST:
        yield (
            TYPE_ONLY,
            f"All {len(judged)} types are points: mean cosine {figures.cosines.within:.2f} within types, "
            f"{figures.cosines.between:.2f} between them.",
        )


def _low_rank(figures: Figures, thresholds: HealthThresholds) -> Iterator[tuple[str, str]]:
    judged = [each for each in figures.types if each.judged]
    thin = [each for each in judged if narrow(each, thresholds)]
    rich = [each.effective_rank for each in judged if each not in thin]
    whole = low_rank(figures, thresholds)
    stands_out = bool(thin and rich) and np.mean(rich) >= RANK_CONTRAST * np.mean(
        [each.effective_rank for each in thin]
    )
    if stands_out or (thin and len(judged) > 1 and not whole):
        displayed = ", ".join(f"'{each.name}' (effective rank {each.effective_rank:.1f})" for each in thin)
        yield COLLAPSED_TYPE, f"The rows of a type vary only in few directions: {displayed}."
    if thin or whole:
        yield (
            SUBSPACE,
            f"{figures.components_90} of {figures.available} possible components hold 90 % of the variance; "
            f"effective rank {figures.effective_rank:.1f}.",
        )
