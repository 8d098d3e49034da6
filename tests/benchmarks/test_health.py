"""Healthy runs suggest thresholds that they pass themselves, and say whether the defaults hold for them."""

import json

import numpy as np
import pytest
from benchmarks.health import calibrate

from graphmill.errors import InputError
from graphmill.evaluation.health.checks import HealthThresholds
from graphmill.evaluation.health.report import HealthReport, health_report
from tests.evaluation.health import synthetic as cases

SIZE = cases.Size(rows=500, dimensions=48, types=3)


def reports(draw: cases.Draw, count: int = 3) -> list[HealthReport]:
    drawn = [draw(np.random.default_rng(seed), SIZE) for seed in range(count)]
    return [health_report(case.X, case.types, ("a", "b", "c")) for case in drawn]


def test_suggested_thresholds_pass_the_runs_they_come_from() -> None:
    result = calibrate(reports(cases.decaying_clustered))
    assert result["all_defaults_hold"] is True
    assert result["failures"] == [[], [], []]
    suggested = HealthThresholds(**{name: row["suggested"] for name, row in result["thresholds"].items()})
    for seed in range(3):
        case = cases.decaying_clustered(np.random.default_rng(seed), SIZE)
        assert health_report(case.X, case.types, ("a", "b", "c"), thresholds=suggested).status == "pass"


def test_a_suggestion_lies_beyond_the_worst_run_on_the_right_side() -> None:
    rows = calibrate(reports(cases.clustered))["thresholds"]
    for row in rows.values():
        if row["side"] == "max":
            assert row["suggested"] >= max(row["observed"])
        else:
            assert row["suggested"] <= min(row["observed"])


def test_a_default_that_a_run_breaks_is_told() -> None:
    result = calibrate(reports(cases.cone))
    assert result["all_defaults_hold"] is False
    assert result["thresholds"]["mean_cosine_max"]["default_holds"] is False
    assert result["thresholds"]["effective_rank_share_min"]["default_holds"] is True
    assert all("mean_cosine" in failures for failures in result["failures"])


def test_written_reports_calibrate_as_well() -> None:
    original = reports(cases.clustered, 2)
    written = [json.loads(json.dumps(report.to_dict())) for report in original]
    assert calibrate(written) == calibrate(original)
    json.dumps(calibrate(written), allow_nan=False)
    assert "link_signal_min" not in calibrate(written)["thresholds"]  # no ranking was given


def test_one_run_is_not_enough() -> None:
    with pytest.raises(InputError, match="at least 2 runs"):
        calibrate(reports(cases.clustered, 1))


def test_a_suggestion_is_a_value_that_the_setting_allows() -> None:
    result = calibrate(reports(cases.complete_collapse, 2))["thresholds"]
    assert result["mean_cosine_max"]["suggested"] < 1
    HealthThresholds(**{name: row["suggested"] for name, row in result.items()})
