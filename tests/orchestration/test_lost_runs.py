"""Runs whose process is gone are ended and free their slot; a run that lives is left alone, whoever has gone beside it."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import psutil
import pytest
from dagster import DagsterEvent, DagsterEventType, DagsterRun, DagsterRunStatus
from dagster._core.events import EngineEventData

from graphmill.orchestration.lost_runs import INTERVAL_SECONDS, STEP_GRACE_SECONDS, Memory, Noted, check_run, lost_runs

SLEEP = [sys.executable, "-c", "import time; time.sleep(600)"]
STUBBORN = [
    sys.executable,
    "-c",
    "import signal, time; signal.signal(15, signal.SIG_IGN); print(flush=True); time.sleep(600)",
]


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[dg.DagsterInstance]:
    home = tmp_path / "home"
    home.mkdir()
    (home / "dagster.yaml").write_text("concurrency: {pools: {default_limit: 1, granularity: op}}\n")
    with dg.DagsterInstance.from_config(str(home)) as instance:
        yield instance


def started(
    instance: dg.DagsterInstance, pid: int | None, *, tags: dict[str, str] | None = None, **more: Any
) -> DagsterRun:
    """A run whose worker noted ``pid``."""
    server = {".dagster/grpc_info": json.dumps({"host": "localhost", "socket": "/nowhere/socket"})}
    status = more.pop("status", DagsterRunStatus.STARTED)
    run = instance.create_run_for_job(JOB, status=status, tags=server if tags is None else tags)
    if pid is not None:
        instance.report_engine_event(f"Started process for run (pid: {pid}).", run, EngineEventData.in_process(pid))
    return run


@dg.op
def nothing() -> None:
    """No work."""


@dg.job
def work() -> None:
    """No work."""
    nothing()


JOB = work


def gone() -> int:
    """The id of a process that has ended."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def status(instance: dg.DagsterInstance, run: DagsterRun) -> DagsterRunStatus:
    result = instance.get_run_by_id(run.run_id)
    assert result is not None
    return result.status


def look_twice(instance: dg.DagsterInstance, run: DagsterRun, memory: Memory | None = None, apart: float = 20) -> str:
    memory = memory or Memory()
    check_run(instance, run, memory, time.time())
    return check_run(instance, run, memory, time.time() + apart)


def test_a_run_whose_process_is_gone_is_ended_at_the_second_look(instance: dg.DagsterInstance) -> None:
    run, memory, now = started(instance, gone()), Memory(), time.time()
    assert check_run(instance, run, memory, now) == f"the process of run {run.run_id[:8]} is gone"
    assert status(instance, run) == DagsterRunStatus.STARTED, "it may just be ending"
    assert (
        check_run(instance, run, memory, now + INTERVAL_SECONDS) == f"ended run {run.run_id[:8]}, whose process is gone"
    )
    assert status(instance, run) == DagsterRunStatus.FAILURE


def test_its_slot_of_the_pool_is_free_at_once(instance: dg.DagsterInstance) -> None:
    run = started(instance, gone())
    storage = instance.event_log_storage
    storage.initialize_concurrency_limit_to_default("accelerator")
    assert storage.claim_concurrency_slot("accelerator", run.run_id, "step").is_claimed
    assert not storage.claim_concurrency_slot("accelerator", "another", "step").is_claimed
    look_twice(instance, run)
    assert storage.claim_concurrency_slot("accelerator", "another", "step").is_claimed


def test_a_run_that_lives_is_left_alone_also_when_its_code_server_is_gone(instance: dg.DagsterInstance) -> None:
    worker = subprocess.Popen(SLEEP)
    try:
        run = started(instance, worker.pid)
        for _ in range(3):
            assert look_twice(instance, run) == ""
        assert status(instance, run) == DagsterRunStatus.STARTED
    finally:
        worker.kill()
    os.waitid(os.P_PID, worker.pid, os.WEXITED | os.WNOWAIT)  # until it is dead, and leave it to be waited for
    assert look_twice(instance, run).startswith("ended"), "a killed process that nobody has waited for is gone, too"
    worker.wait()


def test_a_process_that_began_later_under_the_same_id_is_not_taken_for_it() -> None:
    pid, now = os.getpid(), time.time()
    assert Noted(pid, now).process() is not None
    assert Noted(pid, psutil.Process().create_time() - 3600).process() is None


def test_what_is_left_of_its_steps_is_stopped_first(instance: dg.DagsterInstance) -> None:
    """A step in a process of its own outlives its run's worker, and would train on beside the next run."""
    step = subprocess.Popen(STUBBORN, stdout=subprocess.PIPE)
    assert step.stdout is not None
    step.stdout.readline()
    try:
        run, memory, now = started(instance, gone()), Memory(), time.time()
        event = DagsterEvent(DagsterEventType.STEP_START.value, "work", step_key="nothing", pid=step.pid)
        instance.report_dagster_event(event, run.run_id)
        check_run(instance, run, memory, now)
        assert check_run(instance, run, memory, now + 20).startswith("stopping what is left of run")
        assert step.poll() is None, "it has time to save"
        assert status(instance, run) == DagsterRunStatus.STARTED
        check_run(instance, run, memory, now + STEP_GRACE_SECONDS + 1)
        assert step.wait(10) == -9
        assert check_run(instance, run, memory, now + STEP_GRACE_SECONDS + 21).startswith("ended run")
    finally:
        step.kill()


def test_runs_of_other_machines_and_launchers_are_not_judged(
    instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert look_twice(instance, started(instance, gone(), tags={})) == ""
    monkeypatch.setattr("graphmill.orchestration.lost_runs._one_machine", lambda _: False)
    run = started(instance, gone())
    assert look_twice(instance, run) == "", "its code server's socket is not of this machine"
    assert look_twice(instance, run, Memory(seen=[run.run_id])).startswith("ended"), "it was seen here"
    (tmp_path / "socket").touch()
    here = {".dagster/grpc_info": json.dumps({"host": "localhost", "socket": str(tmp_path / "socket")})}
    assert look_twice(instance, started(instance, gone(), tags=here)).startswith("ended")


def test_a_code_location_leaves_runs_of_others_alone_where_they_may_be_on_other_machines(
    instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process here may have the id that another machine's has."""
    run, memory = started(instance, os.getpid()), Memory()
    check_run(instance, run, memory, time.time(), "mine")
    assert memory.seen == [run.run_id], "one machine: whoever looks knows its processes"
    monkeypatch.setattr("graphmill.orchestration.lost_runs._one_machine", lambda _: False)
    memory = Memory()
    assert check_run(instance, run, memory, time.time(), "mine") == ""
    assert memory.seen == []


def test_a_run_that_is_starting_is_left_to_dagsters_own_monitoring(instance: dg.DagsterInstance) -> None:
    run = started(instance, None, status=DagsterRunStatus.STARTING)
    assert look_twice(instance, run) == ""
    assert status(instance, run) == DagsterRunStatus.STARTING


def test_a_run_that_was_being_cancelled_is_cancelled(instance: dg.DagsterInstance) -> None:
    run = started(instance, gone(), status=DagsterRunStatus.CANCELING)
    look_twice(instance, run)
    assert status(instance, run) == DagsterRunStatus.CANCELED


def test_the_sensor_remembers_from_tick_to_tick_and_forgets_runs_that_have_ended(instance: dg.DagsterInstance) -> None:
    worker = subprocess.Popen(SLEEP)
    try:
        lost, lives = started(instance, gone()), started(instance, worker.pid)
        cursor = "of another version"
        for _ in range(2):
            with dg.build_sensor_context(instance=instance, cursor=cursor) as context:
                result = lost_runs(context)
            cursor = result.cursor
        assert status(instance, lost) == DagsterRunStatus.FAILURE
        assert status(instance, lives) == DagsterRunStatus.STARTED
        with dg.build_sensor_context(instance=instance, cursor=cursor) as context:
            result = lost_runs(context)
        assert json.loads(result.cursor) == {"seen": [lives.run_id], "gone": {}}
    finally:
        worker.kill()
        worker.wait()


def test_it_is_on_in_every_project(repository: Path) -> None:
    sensor = dg.load_from_defs_folder(path_within_project=repository / "src/graphmill").get_sensor_def(lost_runs.name)
    assert sensor.default_status == dg.DefaultSensorStatus.RUNNING
