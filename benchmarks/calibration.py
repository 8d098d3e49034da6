"""Thresholds from healthy embeddings: what a few trained runs show, with room to spare, put beside the defaults.

``python -m benchmarks.hetionet --json`` writes ``benchmarks/results/health_calibration.json`` from the health reports of
its seeds (docs/reference/checks.md).
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from graphmill.errors import InputError
from graphmill.evaluation.health.check import Threshold
from graphmill.evaluation.health.checks import CHECKS
from graphmill.evaluation.health.report import HealthReport
from graphmill.evaluation.health.thresholds import HealthThresholds

#: A suggested bound lies this many standard deviations beyond the worst run, and at least this part of its value.
DEVIATIONS = 3.0
LEAST_ROOM = 0.2
#: How far inside an excluded end a suggestion stays.
EXCLUDED = 1e-6


_BOUNDS = tuple(own for check in CHECKS for own in check.thresholds if own.figure)


def calibrate(reports: Sequence[HealthReport | Mapping[str, Any]]) -> dict[str, Any]:
    """Suggest thresholds from reports (or their ``to_dict()``) on healthy embeddings, one per seed.

    Per threshold: ``observed`` (a value per report; for a bound on types the worst judged type's), ``suggested`` (the
    worst value with room: three standard deviations over the reports, at least a fifth of its size, cut to what the
    setting allows), ``default``, ``default_holds`` (no report breaks it) and ``room`` (how far the worst value is
    inside the default, as a share of the default). ``all_defaults_hold`` sums up. Raises :class:`InputError` below two
    reports.
    """
    plain = [report.to_dict() if isinstance(report, HealthReport) else dict(report) for report in reports]
    if len(plain) < 2:
        raise InputError(
            f"a calibration needs the health reports of at least 2 runs, better 3 seeds; there is {len(plain)}"
        )
    defaults = HealthThresholds()
    thresholds = {}
    for bound in _BOUNDS:
        observed = [value for report in plain if (value := _observed(report, bound)) is not None]
        if observed:
            thresholds[bound.name] = _suggestion(bound, observed, float(getattr(defaults, bound.name)))
    return {
        "reports": len(plain),
        "failures": [report["failure"] for report in plain],
        "thresholds": thresholds,
        "all_defaults_hold": all(row["default_holds"] for row in thresholds.values()),
    }


def _is_upper(bound: Threshold) -> bool:
    return bound.name.endswith("_max")


def _observed(report: Mapping[str, Any], bound: Threshold) -> float | None:
    if not bound.per_type:
        value = report["figures"][bound.figure]
        return None if value is None else float(value)
    values = [float(own[bound.figure]) for own in report["types"] if own["judged"]]
    if not values:
        return None
    return max(values) if _is_upper(bound) else min(values)


def _suggestion(bound: Threshold, observed: Sequence[float], default: float) -> dict[str, Any]:
    highest = _is_upper(bound)
    worst = max(observed) if highest else min(observed)
    room = max(DEVIATIONS * float(np.std(observed, ddof=1)) if len(observed) > 1 else 0.0, LEAST_ROOM * abs(worst))
    suggested = _allowed(bound.name, worst + room if highest else worst - room)
    inside = (default - worst) if highest else (worst - default)
    return {
        "figure": bound.figure,
        "side": "max" if highest else "min",
        "observed": list(observed),
        "suggested": suggested,
        "default": default,
        "default_holds": inside >= 0,
        "room": inside / abs(default) if default else inside,
    }


def _allowed(threshold: str, value: float) -> float:
    """``value`` within the setting's own bounds, whole where the setting is."""
    field = HealthThresholds.model_fields[threshold]
    for limit in field.metadata:
        if (low := getattr(limit, "ge", None)) is not None:
            value = max(value, float(low))
        if (low := getattr(limit, "gt", None)) is not None:
            value = max(value, float(low) + EXCLUDED)
        if (high := getattr(limit, "le", None)) is not None:
            value = min(value, float(high))
        if (high := getattr(limit, "lt", None)) is not None:
            value = min(value, float(high) - EXCLUDED)
    return int(value) if field.annotation is int else float(value)
