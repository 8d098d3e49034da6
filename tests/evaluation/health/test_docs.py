"""docs/reference/checks.md is made from the checks: every figure with a bound, and every threshold."""

import re
from pathlib import Path

import numpy as np
import pytest

from graphmill.evaluation.health.checks import CHECKS, GROUPS, HealthThresholds
from graphmill.evaluation.health.report import health_report
from tests.conftest import page_writer
from tests.evaluation.health import synthetic as cases


@pytest.fixture(scope="module")
def page(repository: Path) -> str:
    return (repository / "docs" / "reference" / "checks.md").read_text(encoding="utf-8")


def test_its_tables_are_those_of_the_code(page: str) -> None:
    assert page == page_writer("checks").with_tables(page), "make pages"


def test_every_check_has_a_name_of_its_own_and_its_thresholds_are_settings() -> None:
    assert len({check.name for check in CHECKS}) == len(CHECKS)
    assert {check.group for check in CHECKS} == set(GROUPS)
    names = [threshold.name for check in CHECKS for threshold in check.thresholds]
    assert sorted([*names, "type_rows_min"]) == sorted(HealthThresholds.model_fields)


def test_every_threshold_is_named_with_its_default(page: str) -> None:
    for name, value in HealthThresholds().model_dump().items():
        output = re.search(rf"`{name}` ([−0-9.]+)", page)
        assert output, name
        assert float(output.group(1).rstrip(".").replace("−", "-")) == value, name


def test_every_verdict_is_explained(page: str) -> None:
    case = cases.decaying_clustered(np.random.default_rng(0), cases.Size(300, 16, 2))
    for verdict in health_report(case.X, case.types, ("drug", "disease")).verdicts:
        assert f"`{verdict.name}`" in page, verdict.name
