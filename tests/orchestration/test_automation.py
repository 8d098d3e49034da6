"""Jobs run by clock and by file: what launches them, what does not, and that nothing starts by itself."""

import datetime
import json
import os
from pathlib import Path

import dagster as dg
import pytest
from dagster._core.definitions.partitions.context import partition_loading_context

from graphmill.errors import InputError, SettingsError
from graphmill.ingest import sources as source_files
from graphmill.orchestration import automation


@dg.asset
def nodes() -> None:
    pass


JOB = dg.define_asset_job("biomed_refresh", dg.AssetSelection.assets(nodes))


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "kg.csv"
    path.write_text("a,b\n1,2\n")
    os.utime(path, (1000, 1000))
    return path


def evaluated(cursor: str | None, source: Path) -> dg.SensorResult:
    return automation.evaluate(cursor, lambda: {"edges": str(source)})


def looks(count: int, cursor: str | None, source: Path) -> dg.SensorResult:
    for _ in range(count):
        result = evaluated(cursor, source)
        cursor = result.cursor
    return result


def change(source: Path, text: str, time: int) -> None:
    source.write_text(text)
    os.utime(source, (time, time))


def test_two_equal_looks_launch_once(source: Path) -> None:
    first = evaluated(None, source)
    assert not first.run_requests
    second = evaluated(first.cursor, source)
    assert len(second.run_requests) == 1
    third = evaluated(second.cursor, source)
    assert not third.run_requests
    assert third.skip_reason.skip_message == "the files have not changed"


def test_the_run_key_is_the_content(source: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.csv"
    change(copy, source.read_text(), 5000)
    keys = {looks(2, None, path).run_requests[0].run_key for path in (source, copy)}
    assert len(keys) == 1
    change(copy, "other", 5001)
    assert looks(2, None, copy).run_requests[0].run_key not in keys


def test_a_file_that_grows_is_left_alone_until_it_rests(source: Path) -> None:
    cursor = looks(2, None, source).cursor
    for size in range(3):
        change(source, "x" * size, 2000 + size)
        result = evaluated(cursor, source)
        cursor = result.cursor
        assert not result.run_requests
        assert "waiting" in result.skip_reason.skip_message
    assert evaluated(cursor, source).run_requests


def test_a_touched_file_launches_nothing(source: Path) -> None:
    cursor = looks(2, None, source).cursor
    os.utime(source, (3000, 3000))
    result = looks(2, cursor, source)
    assert not result.run_requests
    assert "touched" in result.skip_reason.skip_message


def test_content_that_comes_back_is_launched_again(source: Path) -> None:
    original = source.read_text()
    first = looks(2, None, source)
    change(source, "changed", 4000)
    second = looks(2, first.cursor, source)
    change(source, original, 4001)
    third = looks(2, second.cursor, source)
    keys = [result.run_requests[0].run_key for result in (first, second, third)]
    assert len(set(keys)) == 3
    assert json.loads(third.cursor)["content"] == json.loads(first.cursor)["content"]


def test_a_missing_file_is_named_and_waited_for(source: Path) -> None:
    cursor = looks(2, None, source).cursor
    source.unlink()
    result = evaluated(cursor, source)
    assert "does not exist" in result.skip_reason.skip_message
    change(source, "back, and new", 6000)
    assert looks(2, result.cursor, source).run_requests


def test_the_sensor_is_stopped_and_works_when_asked(source: Path) -> None:
    sensor = automation.file_sensor("biomed_files", JOB, ["kg.csv"], lambda cursor: evaluated(cursor, source), 60)
    assert sensor.default_status == dg.DefaultSensorStatus.STOPPED
    assert sensor.minimum_interval_seconds == 60
    defs = dg.Definitions(assets=[nodes], sensors=[sensor], jobs=[JOB])
    with dg.build_sensor_context(definitions=defs, cursor=evaluated(None, source).cursor) as context:
        tick = sensor.evaluate_tick(context)
    assert len(tick.run_requests) == 1


def test_the_schedule_is_stopped_and_launches_its_job() -> None:
    schedule = automation.retraining_schedule("biomed_hgt_schedule", JOB, "0 3 * * 1", "Europe/Berlin")
    assert schedule.default_status == dg.DefaultScheduleStatus.STOPPED
    assert schedule.execution_timezone == "Europe/Berlin"
    time = datetime.datetime(2026, 1, 5, 3, tzinfo=datetime.UTC)
    defs = dg.Definitions(assets=[nodes], schedules=[schedule], jobs=[JOB])
    context = dg.build_schedule_context(scheduled_execution_time=time, repository_def=defs.get_repository_def())
    assert len(schedule.evaluate_tick(context).run_requests) == 1


def test_a_schedule_of_snapshots_launches_the_newest() -> None:
    partitions = dg.DynamicPartitionsDefinition(name="biomed_snapshots")

    @dg.asset(partitions_def=partitions)
    def graph() -> None: ...

    job = dg.define_asset_job("retrain", dg.AssetSelection.assets(graph))
    schedule = automation.retraining_schedule("s", job, "0 3 * * 1", "UTC", partitions)
    time = datetime.datetime(2026, 1, 5, 3, tzinfo=datetime.UTC)
    repository = dg.Definitions(assets=[graph], schedules=[schedule], jobs=[job]).get_repository_def()
    with dg.instance_for_test() as instance, partition_loading_context(dynamic_partitions_store=instance):
        context = dg.build_schedule_context(instance, scheduled_execution_time=time, repository_def=repository)
        assert schedule.evaluate_tick(context).skip_message == "there is no snapshot yet"
        instance.add_dynamic_partitions("biomed_snapshots", ["2024-10", "2024-9"])
        (request,) = schedule.evaluate_tick(context).run_requests
    assert request.partition_key == "2024-10"


@pytest.mark.parametrize(("cron", "timezone"), [("every monday", "UTC"), ("0 3 * * 1", "Mars/Olympus")])
def test_a_schedule_that_is_none_is_refused(cron: str, timezone: str) -> None:
    with pytest.raises(SettingsError, match=r"schedule: .*(every monday|Mars/Olympus)"):
        automation.retraining_schedule("s", JOB, cron, timezone)


def test_freshness_warns_before_it_fails() -> None:
    policy = automation.freshness_policy(170, 192)
    assert policy.warn_window.to_timedelta() == datetime.timedelta(hours=170)
    assert policy.fail_window.to_timedelta() == datetime.timedelta(hours=192)
    assert automation.freshness_policy(0, 24).warn_window is None


@pytest.mark.parametrize(("warn", "fail"), [(24, 24), (0, 0), (48, 24)])
def test_freshness_windows_must_be_in_order(warn: float, fail: float) -> None:
    with pytest.raises(SettingsError, match=r"freshness\."):
        automation.freshness_policy(warn, fail)


def test_paths_are_below_the_project_unless_they_say_otherwise(tmp_path: Path) -> None:
    assert source_files.located("data/kg.csv", tmp_path) == str(tmp_path / "data/kg.csv")
    assert source_files.located("/data/kg.csv", tmp_path) == "/data/kg.csv"
    assert source_files.located("s3://bucket/kg.csv", tmp_path) == "s3://bucket/kg.csv"


def test_a_digest_is_of_the_content(source: Path, tmp_path: Path) -> None:
    copy = tmp_path / "other-name.csv"
    copy.write_bytes(source.read_bytes())
    assert source_files.digest(str(source)) == source_files.digest(str(copy))
    copy.write_bytes(source.read_bytes() + b"\n")
    assert source_files.digest(str(source)) != source_files.digest(str(copy))


def test_files_may_be_remote() -> None:
    import fsspec

    with fsspec.open("memory://in/kg.csv", "wb") as file:
        file.write(b"a,b\n")
    assert source_files.state("memory://in/kg.csv").size == 4
    assert len(source_files.digest("memory://in/kg.csv")) == 32


@pytest.mark.parametrize(("name", "complaint"), [("none.csv", "does not exist"), (".", "is a directory")])
def test_what_is_no_file_is_refused(tmp_path: Path, name: str, complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        source_files.digest(str(tmp_path / name))
