"""The thresholds of all health checks as one settings model, so that they can be adapted to a data set.

Each is defined with its check (:mod:`graphmill.evaluation.health.checks`). docs/reference/checks.md says which are
measured and which are conventions.
"""

from typing import Any

from graphmill.evaluation.health.check import settings_of_thresholds
from graphmill.evaluation.health.checks import CHECKS
from graphmill.settings import setting

_OfChecks: Any = settings_of_thresholds(own for check in CHECKS for own in check.thresholds)


class HealthThresholds(_OfChecks):
    """Bounds of :func:`graphmill.evaluation.health.report.health_report`. A figure exactly at its bound passes."""

    type_rows_min: int = setting(30, "Types with fewer rows are shown but not judged.", ge=3)
