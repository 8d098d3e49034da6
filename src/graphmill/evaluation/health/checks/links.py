"""The check that vectors belong to their ids."""

import math

from graphmill.evaluation.health.check import Group, HealthCheck, Threshold

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
CHECKS = (LINK_SIGNAL,)
