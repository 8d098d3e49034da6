"""Checks of the number of directions that the rows use."""

from graphmill.evaluation.health.check import Group, HealthCheck, Threshold
from graphmill.evaluation.health.direction_bounds import components_90_needed

VARIANCE = Group(
    "pca_variance",
    "Many principal components share the variance. If a few have nearly all of it, the message says what to change.",
    picture="spectrum",
)
WIDER = ("raise hidden_dim", "train longer", "lower weight_decay", "lower regularisation", "raise contrastive_weight")
_NUMBER = "Principal components for 90 % of the variance; the check asks for at most 30 % of the dimensions."
_SHARE = "The same number as a share of the dimensions; below it, the rows lie in a subspace."
_RANK = "Effective rank (RankMe, centred) as a share of the dimensions; below it, the rows lie in a subspace."

CHECKS = (
    HealthCheck(
        name="components_90",
        group=VARIANCE,
        what="principal components for 90 % of the variance, centred",
        thresholds=(
            Threshold("components_90_min", 15, _NUMBER, ge=1),
            Threshold("components_90_share_min", 0.04, _SHARE, ge=0, le=1),
        ),
        bound="{components_90_min} and {components_90_share_min} of the available dimensions",
        figure=lambda e: e.figures.components_90,
        needed=lambda e: components_90_needed(e.thresholds, e.figures.available),
        good="Many components share the variance.",
        bad="A few components hold 90 % of the variance: most of the width is unused.",
        remedy=WIDER,
    ),
    HealthCheck(
        name="effective_rank_share",
        group=VARIANCE,
        what="`effective_rank`, exp of the entropy of the singular values (RankMe, arXiv 2210.02885), centred, as a share "
        "of the available dimensions",
        thresholds=(Threshold("effective_rank_share_min", 0.1, _RANK, ge=0, le=1),),
        figure=lambda e: e.figures.share(e.figures.effective_rank),
        good="The singular values spread over the dimensions.",
        bad="The singular values concentrate on few directions: the rows lie in a subspace.",
        remedy=WIDER,
    ),
)
