"""Checks of single rows: broken, missing, repeated, too long."""

from graphmill.evaluation.health.check import Evidence, Group, HealthCheck, Outcome, Threshold, judged

SOUND = Group("rows_are_sound", "No row is missing, dead, repeated, or far longer than the rest.")


def _non_finite(e: Evidence) -> Outcome:
    return judged(
        e.figures.non_finite,
        0,
        e.figures.non_finite == 0,
        "Every number is finite.",
        "Rows hold NaN or infinity: the training diverged, or the file is damaged.",
    )


def _dead(e: Evidence) -> Outcome:
    dead, most = e.figures.dead, e.thresholds.dead_rows_max
    return judged(
        dead,
        most,
        dead <= most and e.figures.live >= 2,
        "No row is zero.",
        "Rows are zero or vanish beside the others: every similarity to those nodes is noise.",
    )


def _duplicated(e: Evidence) -> Outcome:
    share, most = e.figures.duplicated_share, e.thresholds.duplicated_share_max
    if share <= most and e.figures.duplicated:
        return Outcome(
            share,
            most,
            "warn",
            f"{e.figures.duplicated} rows repeat another row bit for bit, fewer than the bound.",
            "Look at these nodes: without edges or features they get what everything like them gets.",
        )
    return judged(
        share,
        most,
        share <= most,
        "No row repeats another.",
        "Rows repeat other rows bit for bit: those nodes cannot be told apart.",
    )


def _norm_spread(e: Evidence) -> Outcome:
    spread, most = e.figures.norm_spread, e.thresholds.norm_spread_max
    return judged(
        spread,
        most,
        spread <= most,
        "The rows have comparable lengths.",
        "A few rows are far longer than the rest: hubs win every dot product.",
        "warn",
    )


CHECKS = (
    HealthCheck(
        name="non_finite_rows",
        group=SOUND,
        what="rows with NaN or infinity",
        bound="0",
        judge=_non_finite,
        remedy="Lower learning_rate, or use precision fp32 or bf16; on_nonfinite: stop names the batch.",
    ),
    HealthCheck(
        name="dead_rows",
        group=SOUND,
        what="rows that are zero or vanish beside the others",
        thresholds=(
            Threshold("dead_rows_max", 0, "Rows that may be all zero (or vanishing beside the others).", ge=0),
        ),
        judge=_dead,
        remedy="Look for nodes that no message reaches and types without features; drop isolated nodes or connect them.",
    ),
    HealthCheck(
        name="duplicated_share",
        group=SOUND,
        what="share of rows that repeat an earlier one exactly",
        thresholds=(
            Threshold(
                "duplicated_share_max",
                0.01,
                "Share of rows that may repeat another row exactly; any such row is a warning.",
                ge=0,
                le=1,
            ),
        ),
        bound="{duplicated_share_max}; any is a warning",
        judge=_duplicated,
        remedy="Look for nodes without edges or features, a clamped id, or one block written twice.",
    ),
    HealthCheck(
        name="norm_spread",
        group=SOUND,
        what="standard deviation of row norms over their mean",
        thresholds=(
            Threshold(
                "norm_spread_max",
                1.0,
                "Standard deviation of the row norms over their mean; above, hubs are inflated (warning).",
                figure="norm_spread",
                gt=0,
            ),
        ),
        breaking="warn: hubs win every dot product; compare by cosine",
        judge=_norm_spread,
        remedy=("compare by cosine", "turn output_norm on", "raise weight_decay", "raise regularisation"),
    ),
)
