"""What TensorBoard shows after kills and resumes is what the uninterrupted run would show."""

import logging
import math
import os
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from graphmill.training.metrics_log import EventWriter


def curves(directory: Path) -> dict[str, list[tuple[int, float]]]:
    accumulator = EventAccumulator(str(directory), size_guidance={"scalars": 0})
    accumulator.Reload()
    tags = accumulator.Tags()["scalars"]
    return {tag: [(event.step, event.value) for event in accumulator.Scalars(tag)] for tag in tags}


def write(writer: EventWriter, first: int, last: int) -> None:
    for step in range(first, last + 1):
        writer.scalars({"loss/total": 8 / step, "rate": 0.5}, step)


@pytest.mark.parametrize("torn", [0, 1, 30])
def test_a_resumed_run_shows_each_step_once(tmp_path: Path, torn: int) -> None:
    straight = EventWriter(tmp_path / "straight")
    write(straight, 1, 10)
    broken = EventWriter(tmp_path / "broken")
    write(broken, 1, 7)  # killed in step 7; the checkpoint is of step 4
    (file,) = (tmp_path / "broken").iterdir()
    os.truncate(file, file.stat().st_size - torn)
    resumed = EventWriter(tmp_path / "broken", purge_step=5)
    write(resumed, 5, 10)
    output = curves(tmp_path / "broken")
    assert output == curves(tmp_path / "straight")
    assert output["loss/total"] == [(step, pytest.approx(8 / step)) for step in range(1, 11)]


def test_several_restarts_within_a_second_keep_their_order(tmp_path: Path) -> None:
    for first in (1, 3, 5):
        writer = EventWriter(tmp_path, purge_step=first)
        write(writer, first, first + 3)
        writer.close()
    assert [step for step, _ in curves(tmp_path)["rate"]] == list(range(1, 9))


def test_nothing_waits_to_be_flushed(tmp_path: Path) -> None:
    writer = EventWriter(tmp_path)
    writer.scalars({"loss": math.nan}, 1)
    ((step, value),) = curves(tmp_path)["loss"]
    assert (step, math.isnan(value)) == (1, True)


def test_when_events_cannot_be_written_it_is_said_once_and_work_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = EventWriter(tmp_path)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("graphmill.training.metrics_log.write_all", full)
    with caplog.at_level(logging.WARNING):
        write(writer, 1, 3)
    (record,) = caplog.records
    assert "No space left on device" in record.message
    (tmp_path / "file").write_text("")
    write(EventWriter(tmp_path / "file" / "below"), 1, 2)
