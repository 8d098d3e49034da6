"""Checks of the similarity of random rows, and of a few dimensions that may cause it."""

from graphmill.evaluation.health.check import Group, HealthCheck, Threshold

COSINE = Group(
    "mean_cosine",
    "Two random rows point in different directions. If they do not, the message says what to change.",
    picture="cosines",
)
ROGUE = Group(
    "no_rogue_dimension",
    "No group of one to three dimensions decides every similarity. If one does, the message says what to change.",
)

_CONE = "Mean cosine of two different rows; above it, all rows share a direction (cone)."
_ONE = "Mean cosine from which a cone is called a complete collapse, if little is left without the mean row."
_ROGUE = "Share of the variance, or of the mean cosine, that one to three dimensions may carry."

CHECKS = (
    HealthCheck(
        name="mean_cosine",
        group=COSINE,
        what="mean cosine of two different rows, exact: (‖Σu‖² − n)/(n(n − 1))",
        thresholds=(
            Threshold("mean_cosine_max", 0.5, _CONE, gt=0, lt=1),
            Threshold("complete_cosine_min", 0.95, _ONE, gt=0, lt=1),
        ),
        bound="{mean_cosine_max}; from {complete_cosine_min} on it is a complete collapse, if little is left",
        figure=lambda e: e.figures.cosines.overall,
        good="Two random rows point in different directions.",
        bad="Two random rows point in the same direction: similarities say little beyond this common direction.",
        remedy=(
            *("subtract the mean row before comparing", "raise contrastive_weight", "raise negatives_per_positive"),
            *("lower weight_decay", "lower num_layers"),
        ),
    ),
    HealthCheck(
        name="rogue_share",
        group=ROGUE,
        what="the share of the variance, or of the mean cosine, that one to three outlying dimensions carry (Timkey & "
        "van Schijndel, arXiv 2109.04404). A dimension that only marks the type does not count",
        thresholds=(Threshold("rogue_share_max", 0.5, _ROGUE, gt=0, le=1),),
        figure=lambda e: e.figures.rogue.share,
        good="No single dimension decides the similarities.",
        bad="One to three dimensions decide every similarity, and hide the information in the others.",
        remedy=("standardise the dimensions before comparing", "check the scales of input features"),
    ),
)
