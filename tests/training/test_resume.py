"""A run that was interrupted anywhere and continued equals the run that never was: bit for bit, for every system."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from graphmill.errors import StoppedError
from graphmill.graph.typed_graph import TypedGraph
from graphmill.runs.recorder import RunListener
from graphmill.training import checkpoint, checkpoint_format
from graphmill.training.checkpoint import CheckpointStore
from graphmill.training.signals import StopRequest
from tests.training.cases import CASES, STEPPED
from tests.training.runs import Hooks, Killed, Outcome, assert_same, busy_clock, outcome, run, settings_of

Interrupt = Callable[[pytest.MonkeyPatch, Hooks, StopRequest], None]
STEP = 5  # the second of the second epoch


def kill_inside_an_accumulation(patch: pytest.MonkeyPatch, hooks: Hooks, stop: StopRequest) -> None:
    busy_clock(patch)

    def kill(step: int, chunk: int) -> None:
        if (step, chunk) == (STEP, hooks.inside):
            raise Killed

    hooks.on_chunk = kill


def stop_inside_an_accumulation(patch: pytest.MonkeyPatch, hooks: Hooks, stop: StopRequest) -> None:
    hooks.on_chunk = lambda step, chunk: stop.request() if (step, chunk) == (STEP, hooks.inside) else None


def stop_inside_an_epochs_first_step(patch: pytest.MonkeyPatch, hooks: Hooks, stop: StopRequest) -> None:
    # Nothing of the epoch is done yet, and the one before is still to be reported by whoever resumes.
    hooks.on_chunk = lambda step, chunk: stop.request() if (step, chunk) == (STEP - 1, hooks.inside) else None


def stop_inside_an_epoch(patch: pytest.MonkeyPatch, hooks: Hooks, stop: StopRequest) -> None:
    hooks.on_gradient = lambda step: stop.request() if step == STEP else None


def kill_at_an_epochs_end(patch: pytest.MonkeyPatch, hooks: Hooks, stop: StopRequest) -> None:
    on_epoch = RunListener.on_epoch

    def kill(self: RunListener, record: dict[str, Any]) -> None:
        if record["epoch"] == 2:
            raise Killed
        on_epoch(self, record)

    patch.setattr(RunListener, "on_epoch", kill)


def kill_in_evaluation(patch: pytest.MonkeyPatch, hooks: Hooks, stop: StopRequest) -> None:
    def kill(number: int) -> None:
        if number == 1:
            raise Killed

    hooks.on_evaluation = kill


def stop_in_evaluation(patch: pytest.MonkeyPatch, hooks: Hooks, stop: StopRequest) -> None:
    hooks.on_evaluation = lambda number: stop.request() if number == 1 else None


def kill_while_writing_a_checkpoint(patch: pytest.MonkeyPatch, hooks: Hooks, stop: StopRequest) -> None:
    busy_clock(patch)
    write, seen = checkpoint_format.write, []

    def tear(file: Any, layout: Any) -> str:
        seen.append(file)
        if len(seen) == 4:
            whole = io.BytesIO()
            write(whole, layout)
            file.write(whole.getvalue()[: whole.tell() // 2])
            raise Killed
        return write(file, layout)

    patch.setattr(checkpoint_format, "write", tear)


def kill_before_older_checkpoints_go(patch: pytest.MonkeyPatch, hooks: Hooks, stop: StopRequest) -> None:
    busy_clock(patch)
    prune, seen = CheckpointStore._prune, []

    def kill(self: CheckpointStore, newest: Path, superseded: Any) -> None:
        seen.append(newest)
        if len(seen) == 4:
            raise Killed
        prune(self, newest, superseded)

    patch.setattr(checkpoint.CheckpointStore, "_prune", kill)


POINTS: list[Interrupt] = [
    kill_inside_an_accumulation,
    stop_inside_an_accumulation,
    stop_inside_an_epochs_first_step,
    stop_inside_an_epoch,
    kill_at_an_epochs_end,
    kill_in_evaluation,
    stop_in_evaluation,
    kill_while_writing_a_checkpoint,
    kill_before_older_checkpoints_go,
]


def matrix() -> Iterator[Any]:
    """Every case at every point; in ``make test`` each case at one point, in turn, the others in ``make test-long``."""
    for number, name in enumerate(STEPPED):
        for place, point in enumerate(POINTS):
            marks = () if place == number % len(POINTS) else (pytest.mark.long,)
            yield pytest.param(name, point, marks=marks, id=f"{name}-{point.__name__}")


@pytest.fixture(autouse=True)
def _saved_by_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Checkpoints within epochs, too."""
    monkeypatch.setattr("graphmill.training.engine.CHECKPOINT_SECONDS", 2)


@pytest.fixture(scope="module")
def uninterrupted(graphs: dict[str, TypedGraph], tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Outcome]:
    """Case name → what its short run leaves; run when first asked for."""
    result: dict[str, Outcome] = {}

    def get(name: str) -> Outcome:
        if name not in result:
            values = settings_of(CASES[name], graphs[name])
            result[name] = outcome(run(values, tmp_path_factory.mktemp("uninterrupted")))
        return result[name]

    return get


@pytest.mark.parametrize(("name", "interrupt"), matrix())
def test_interrupted_and_resumed_equals_uninterrupted(
    name: str,
    interrupt: Interrupt,
    graphs: dict[str, TypedGraph],
    uninterrupted: Callable[[str], Outcome],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    expected = uninterrupted(name)
    values = settings_of(CASES[name], graphs[name])
    stop = StopRequest()
    with monkeypatch.context() as patch:
        # Rows of a batch-norm model stay together: its one chunk is cut inside.
        hooks = Hooks(inside=1 if CASES[name].row_split else 0).install(patch)
        interrupt(patch, hooks, stop)
        with pytest.raises((Killed, StoppedError)):
            run(values, tmp_path, stop)
    assert 0 < hooks.step < len(expected.steps)
    with monkeypatch.context() as patch:
        busy_clock(patch)
        hooks = Hooks().install(patch)
        result = run(values, tmp_path)
    assert hooks.step < len(expected.steps), "it must not start over"
    assert_same(outcome(result), expected)


def test_twice_interrupted_still_equals(
    graphs: dict[str, TypedGraph],
    uninterrupted: Callable[[str], Outcome],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    values = settings_of(CASES["conve-slcwa"], graphs["conve-slcwa"])
    for point in (kill_inside_an_accumulation, stop_in_evaluation):
        with monkeypatch.context() as patch:
            stop = StopRequest()
            point(patch, Hooks(inside=0).install(patch), stop)
            with pytest.raises((Killed, StoppedError)):
                run(values, tmp_path, stop)
    assert_same(outcome(run(values, tmp_path)), uninterrupted("conve-slcwa"))
