"""Times of steps: what warms up is no part of an estimate."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from graphmill.runs import recorder
from graphmill.runs.recorder import RunListener
from graphmill.runs.train import train
from graphmill.training.run_directory import RunDirectory
from graphmill.training.run_state import TrainState
from tests.training.runs import Kept


class Steps:
    """Steps of two phases, three of "pairs" and two of "facts" in an epoch, on a clock that the test moves."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        run, self.said, self.now, self.state = RunDirectory(folder).create(), Kept(), 0.0, TrainState(precision="fp32")
        patch.setattr(recorder.time, "monotonic", lambda: self.now)
        self.listener = RunListener(run, [self.said], epochs=10, phase_steps=[3, 2], every_seconds=0.0)

    def step(self, seconds: float) -> None:
        self.now += seconds
        self.state.steps += 1
        self.listener.on_step(self.state, {"total": 1.0}, 0.1)

    def epoch(self, *seconds: float, evaluation: float = 0.0) -> None:
        for each in seconds:
            self.step(each)
        self.end(evaluation)

    def end(self, evaluation: float = 0.0) -> None:
        self.now += evaluation
        self.state.epoch += 1
        losses = {"losses": {"total": 1.0}, "learning_rate": 0.1, "seconds": 1.0, "per_second": {}, "health": {}}
        self.listener.on_epoch({"epoch": self.state.epoch, "steps": self.state.steps, **losses})


@pytest.fixture
def steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Steps:
    return Steps(tmp_path, monkeypatch)


def test_the_first_step_of_each_phase_is_no_part_of_the_estimate(steps: Steps) -> None:
    steps.step(30.0)
    assert steps.listener.estimate() == {}
    steps.step(1.0)
    steps.step(1.0)
    steps.step(20.0)
    steps.step(4.0)
    steps.end()
    assert steps.listener.estimate()["seconds_per_epoch"] == 3 * 1.0 + 2 * 4.0
    assert steps.listener.estimate()["seconds_per_step"] == pytest.approx(11 / 5)
    assert steps.listener.estimate()["seconds_total"] == 110.0


def test_a_phase_that_has_not_come_to_its_second_step_is_taken_to_be_like_the_others(steps: Steps) -> None:
    for _ in range(4):
        steps.step(2.0)
    assert steps.listener.estimate()["seconds_per_epoch"] == 5 * 2.0


def test_an_epochs_first_step_counts_from_the_second_epoch_on_without_the_evaluation(steps: Steps) -> None:
    steps.epoch(9.0, 1.0, 1.0, 9.0, 2.0, evaluation=50.0)
    steps.epoch(7.0, 7.0, 7.0, 2.0, 2.0)
    assert steps.listener.step_seconds == [[1.0, 1.0, 7.0, 7.0, 7.0], [2.0, 2.0, 2.0]]


def test_an_evaluation_takes_nothing_from_the_next_step(steps: Steps) -> None:
    for seconds in (1.0, 1.0, 1.0, 2.0, 2.0):
        steps.step(seconds)
    steps.end(evaluation=30.0)
    steps.step(5.0)
    assert steps.listener.step_seconds[0] == [1.0, 1.0, 5.0]


def test_a_step_an_epoch_is_timed_too(values: dict[str, Any], tmp_path: Path) -> None:
    one = values | {"training": values["training"] | {"steps_per_epoch": 1, "epochs": 3}}
    assert train(one, "test", root=str(tmp_path))["seconds_per_step"] > 0
