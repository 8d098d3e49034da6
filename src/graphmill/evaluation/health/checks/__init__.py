"""All health checks, in the order of reports, with a file for each of single rows, similarity, spectrum, node types and
links."""

from graphmill.evaluation.health.check import Group, HealthCheck
from graphmill.evaluation.health.checks import links, node_types, similarity, single_rows, spectrum

CHECKS: tuple[HealthCheck, ...] = (
    *single_rows.CHECKS,
    *similarity.CHECKS,
    *spectrum.CHECKS,
    *node_types.CHECKS,
    *links.CHECKS,
)
GROUPS: tuple[Group, ...] = (
    similarity.COSINE,
    spectrum.VARIANCE,
    node_types.VARY,
    node_types.DISEASES,
    single_rows.SOUND,
    similarity.ROGUE,
    links.FIT,
)
"""The checks of the validation asset."""
