"""Times of steps: what warms up or compiles is no part of an estimate, and compiling is said once, before it begins."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from graphmill.runs import recorder
from graphmill.runs.recorder import COMPILING, RunListener
from graphmill.runs.train import train
from graphmill.training import engine
from graphmill.training.run_directory import RunDirectory
from graphmill.training.run_state import TrainState
from tests.training.runs import Kept


class Said(Kept):
    """What was said of compiling."""

    @property
    def compiling(self) -> list[int]:
        """The places of the messages that say so."""
        return [at for at, message in enumerate(self.messages) if message.get("text") == COMPILING]


class Steps:
    """Steps of two phases, three of "pairs" and two of "facts" in an epoch, on a clock that the test moves."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        run, self.said, self.now, self.state = RunDirectory(folder).create(), Said(), 0.0, TrainState(precision="fp32")
        patch.setattr(recorder.time, "monotonic", lambda: self.now)
        self.listener = RunListener(run, [self.said], epochs=10, phase_steps=[3, 2], every_seconds=0.0)

    def step(self, seconds: float, *, compiles: bool = False) -> None:
        if compiles:
            self.listener.on_compiling()
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


def test_a_step_that_compiles_is_no_part_of_it_wherever_it_is(steps: Steps) -> None:
    steps.epoch(1.0, 1.0, 1.0, 2.0, 2.0)
    for _ in range(3):  # as many as the others: a median would not leave them out
        steps.step(40.0, compiles=True)
    assert steps.listener.estimate()["seconds_per_epoch"] == 3 * 1.0 + 2 * 2.0


def test_a_phase_that_has_not_come_to_its_second_step_is_taken_to_be_like_the_others(steps: Steps) -> None:
    for _ in range(4):
        steps.step(2.0)
    assert steps.listener.estimate()["seconds_per_epoch"] == 5 * 2.0


def test_an_epochs_first_step_counts_from_the_second_epoch_on_without_the_evaluation(steps: Steps) -> None:
    steps.epoch(9.0, 1.0, 1.0, 9.0, 2.0, evaluation=50.0)
    steps.epoch(7.0, 7.0, 7.0, 2.0, 2.0)
    assert steps.listener.step_seconds == [[1.0, 1.0, 7.0, 7.0, 7.0], [2.0, 2.0, 2.0]]


def test_what_an_evaluation_compiles_takes_nothing_from_the_next_step(steps: Steps) -> None:
    for seconds in (1.0, 1.0, 1.0, 2.0, 2.0):
        steps.step(seconds)
    steps.listener.on_compiling()
    steps.end(evaluation=30.0)
    steps.step(5.0)
    assert steps.listener.step_seconds[0] == [1.0, 1.0, 5.0]


def test_compiling_is_said_once_and_is_no_warning(steps: Steps) -> None:
    steps.step(1.0, compiles=True)
    steps.step(1.0, compiles=True)
    assert len(steps.said.compiling) == 1
    (line,) = [line for line in (steps.listener.run.path / "train.log").read_text().splitlines() if COMPILING in line]
    assert " INFO " in line


def test_a_training_says_so_before_its_first_step(
    values: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    numba = pytest.importorskip("numba")
    gradient, said = engine.compute_gradient, Said()

    def with_a_kernel(*args: Any, **kwargs: Any) -> Any:
        numba.njit(lambda x: x)(1)  # a new function, which no cache has
        return gradient(*args, **kwargs)

    monkeypatch.setattr(engine, "compute_gradient", with_a_kernel)
    result = train(values, "test", root=str(tmp_path), outlets=[said])
    (at,) = said.compiling
    kinds = [message["kind"] for message in said.messages]
    assert kinds.index("started") < at < kinds.index("progress")
    assert COMPILING not in result["notes"]
    assert result["seconds_per_step"] == 0.0  # every step compiled, so none was timed


def test_a_step_an_epoch_is_timed_too(values: dict[str, Any], tmp_path: Path) -> None:
    one = values | {"training": values["training"] | {"steps_per_epoch": 1, "epochs": 3}}
    assert train(one, "test", root=str(tmp_path))["seconds_per_step"] > 0
