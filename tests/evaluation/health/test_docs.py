"""docs/reference/checks.md has every failure, every figure with a bound, and every threshold with its default."""

import re
from pathlib import Path

import numpy as np
import pytest

from graphmill.evaluation.health import synthetic as cases
from graphmill.evaluation.health.diagnosis import FAILURES
from graphmill.evaluation.health.report import health_report
from graphmill.evaluation.health.thresholds import HealthThresholds
from graphmill.evaluation.ranking.comparison import RankingThresholds
from graphmill.settings import Settings


@pytest.fixture(scope="module")
def page(repository: Path) -> str:
    return (repository / "docs" / "reference" / "checks.md").read_text(encoding="utf-8")


def test_every_failure_has_a_row(page: str) -> None:
    assert re.findall(r"^\| `(\w+)` \|", page.split("## The figures")[0], re.MULTILINE) == list(FAILURES)


@pytest.mark.parametrize("model", [HealthThresholds, RankingThresholds])
def test_every_threshold_is_named_with_its_default(page: str, model: type[Settings]) -> None:
    for name, value in model().model_dump().items():
        shown = re.search(rf"`{name}` ([−0-9.]+)", page)
        assert shown, name
        assert float(shown.group(1).rstrip(".").replace("−", "-")) == value, name


def test_every_verdict_is_explained(page: str) -> None:
    case = cases.decaying_clustered(np.random.default_rng(0), cases.Size(300, 16, 2))
    for verdict in health_report(case.X, case.types, ("drug", "disease")).verdicts:
        assert f"`{verdict.name}`" in page, verdict.name
