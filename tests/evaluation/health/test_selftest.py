"""The validator sees every failure that it is shown and passes what is healthy."""

import json

import pytest

from graphmill.evaluation.health.checks import HealthThresholds
from tests.evaluation.health.selftest import PASSED, SEEN, main, self_test
from tests.evaluation.health.synthetic import FAILING, HEALTHY, SEEN_BY, Size


def test_every_failure_is_seen_and_every_healthy_embedding_passes() -> None:
    result = self_test(5)
    assert result.passed, result.mistakes
    assert set(FAILING) == set(SEEN_BY)
    assert result.confusion == {name: {SEEN: 5} for name in FAILING} | {name: {PASSED: 5} for name in HEALTHY}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("size", "draws"),
    [
        pytest.param(Size(), 10, marks=pytest.mark.long),
        (Size(2000, 64, 8), 10),
        (Size(800, 32, 2), 10),
        (Size(1500, 512, 4), 1),
    ],
)
def test_every_failure_is_seen_in_many_draws_of_several_sizes(size: Size, draws: int) -> None:
    result = self_test(draws, size=size, seed=1)
    assert result.passed, result.mistakes


def test_a_bad_threshold_is_found_out() -> None:
    result = self_test(1, thresholds=HealthThresholds(mean_cosine_max=0.99))
    assert not result.passed
    assert result.mistakes == {"cone": {PASSED: 1}}


def test_the_command_prints_the_confusion_matrix(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--draws", "1", "--rows", "700", "--dimensions", "64"]) == 0
    assert json.loads(capsys.readouterr().out)["passed"] is True
