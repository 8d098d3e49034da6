"""All health checks, in the order of reports, and their thresholds, with a file for each of single rows, similarity,
spectrum, node types and links."""

from typing import Any

from graphmill.evaluation.health.check import Group, HealthCheck, settings_of_thresholds
from graphmill.evaluation.health.checks import links, node_types, similarity, single_rows, spectrum
from graphmill.settings import setting

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
    single_rows.SOUND,
    similarity.ROGUE,
    links.FIT,
)
"""The checks of the validation asset."""

_OfChecks: Any = settings_of_thresholds(each for check in CHECKS for each in check.thresholds)


class HealthThresholds(_OfChecks):
    """Bounds of :func:`graphmill.evaluation.health.report.health_report`. A figure exactly at its bound passes."""

    type_rows_min: int = setting(30, "Types with fewer rows are shown but not judged.", ge=3)
