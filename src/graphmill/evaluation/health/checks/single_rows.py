"""Checks of single rows: not finite, zero, repeated, or too long."""

from dataclasses import replace

from graphmill.evaluation.health.check import CheckInput, Group, HealthCheck, Outcome, Threshold

SOUND = Group(
    "rows_are_sound",
    "No row is missing, zero, repeated, or far longer than the rest. If some are, the message says why.",
)


def _dead(e: CheckInput) -> Outcome:
    most, lonely = e.thresholds.dead_rows_max, e.figures.unconnected
    outcome = DEAD.outcome(e.figures.dead, most, e.figures.dead <= most and e.figures.live >= 2)
    if lonely and outcome.status == "pass":
        nodes = "that of the one node" if lonely == 1 else f"those of the {lonely:,} nodes"
        return replace(
            outcome, meaning=f"No row is zero but {nodes} without a training edge, of which nothing is known."
        )
    return outcome


def _duplicated(e: CheckInput) -> Outcome:
    share, most, rows = e.figures.duplicated_share, e.thresholds.duplicated_share_max, e.figures.duplicated
    if rows and share <= most:
        counted = "1 row repeats" if rows == 1 else f"{rows} rows repeat"
        said = f"{counted} another row bit for bit: a warning, as they are at most {100 * most:g} % of all."
        remedy = "Look at these nodes: nodes without edges or features all get the same vector."
        return Outcome(share, most, "warn", said, remedy)
    outcome = DUPLICATED.outcome(share, most, share <= most)
    if e.figures.alike and outcome.status == "pass":
        rows_alike = "1 row repeats" if e.figures.alike == 1 else f"{e.figures.alike:,} rows repeat"
        return replace(outcome, meaning=f"{rows_alike} another, whose node has the same training neighbours.")
    return outcome


NON_FINITE: HealthCheck = HealthCheck(
    name="non_finite_rows",
    group=SOUND,
    what="rows with NaN or infinity",
    bound="0",
    judge=lambda e: NON_FINITE.outcome(e.figures.non_finite, 0, e.figures.non_finite == 0),
    good="Every number is finite.",
    bad="Rows hold NaN or infinity: the training diverged, or the file is damaged.",
    remedy="Lower learning_rate, or use precision fp32 or bf16.",
)
DEAD = HealthCheck(
    name="dead_rows",
    group=SOUND,
    what="rows that are zero or vanishingly small, but those of nodes without a training edge",
    thresholds=(Threshold("dead_rows_max", 0, "Number of rows that may be zero (or vanishingly small).", ge=0),),
    judge=_dead,
    good="No row is zero.",
    bad="Rows are zero or vanishingly small: every similarity to those nodes is noise.",
    remedy="Look for nodes that no message reaches and types without features; drop isolated nodes or connect them.",
)
_SHARE = "Share of rows that may repeat another row exactly; any such row is a warning."
DUPLICATED = HealthCheck(
    name="duplicated_share",
    group=SOUND,
    what="share of rows that repeat an earlier one exactly, but those of nodes with the same training neighbours",
    thresholds=(Threshold("duplicated_share_max", 0.01, _SHARE, ge=0, le=1),),
    bound="{duplicated_share_max}; any repeated row is a warning",
    judge=_duplicated,
    good="No row repeats another.",
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
CHECKS = (NON_FINITE, DEAD, DUPLICATED, NORM_SPREAD)
