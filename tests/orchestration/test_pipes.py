"""The launcher against real child processes: figures while they work, a verdict on their end, nothing left behind."""

import os
import re
import signal
import sys
import textwrap
import threading
import time
from pathlib import Path
from typing import Any

import dagster as dg
import psutil
import pytest

from graphmill.launchers.child_tree import ChildTree
from graphmill.orchestration.pipes import WorkerClient, WorkerReport, explain, worker_command

KEY = dg.AssetKey(["toy", "model"])
HEADER = """
import os, signal, subprocess, sys, time
from dagster_pipes import open_dagster_pipes
def save_when_asked():
    try:
        open("ready", "w").close()
        time.sleep(600)
    except KeyboardInterrupt:
        open("checkpoint", "w").close()
        sys.exit(75)
def progress(pipes, step, **more):
    pipes.report_custom_message({"kind": "progress", "epoch": 1, "epochs": 2, "step": step,
                                 "losses": {"link": 0.5, "total": 0.75}, "per_second": {"edges": 10.0}, **more})
"""


class Materialize:
    """Runs an asset whose worker is a script, and keeps what it reported."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.instance = dg.DagsterInstance.ephemeral()
        self.reports: list[WorkerReport] = []

    def __call__(self, script: str, **client: float) -> dg.ExecuteInProcessResult:
        path = self.directory / "worker.py"
        path.write_text(textwrap.dedent(HEADER) + textwrap.dedent(script))

        @dg.asset(key=KEY)
        def model(context: dg.AssetExecutionContext, worker: WorkerClient) -> dg.MaterializeResult:
            command = [sys.executable, str(path)]
            job = {"settings": {"epochs": 2}}
            report = worker.run(context, extras=job, asset_key=KEY, cwd=str(self.directory), command=command)
            self.reports.append(report)
            return dg.MaterializeResult()

        options = {"observe_seconds": 0.0, "retry_wait_seconds": 0.0, "grace_seconds": 2.0, **client}
        worker = WorkerClient(**options)
        return dg.materialize([model], resources={"worker": worker}, instance=self.instance, raise_on_error=False)


@pytest.fixture
def materialize(tmp_path: Path) -> Materialize:
    return Materialize(tmp_path)


def failure_of(result: dg.ExecuteInProcessResult) -> Any:
    (event,) = [e for e in result.all_events if e.event_type_value == "STEP_FAILURE"]
    return event.step_failure_data


def observations(materialize: Materialize) -> list[dict]:
    records = materialize.instance.fetch_observations(KEY, limit=100).records
    return [
        {key: value.value for key, value in record.asset_observation.metadata.items()} for record in reversed(records)
    ]


def test_job_arrives_and_result_comes_back(materialize: Materialize) -> None:
    result = materialize("""
        with open_dagster_pipes() as pipes:
            pipes.report_custom_message({"kind": "result", "run_dir": "r", "job": pipes.extras, "cwd": os.getcwd()})
    """)
    assert result.success
    (report,) = materialize.reports
    assert report.result["job"] == {"settings": {"epochs": 2}}
    assert report.started == {}
    assert report.error == {}


def test_figures_become_observations(materialize: Materialize) -> None:
    assert materialize("""
        with open_dagster_pipes() as pipes:
            pipes.report_custom_message({"kind": "started", "run_dir": "r/1", "resumed_from_epoch": 3, "device": "cpu",
                                         "device_reason": "no GPU", "estimate": {"seconds_total": 60}})
            for step in range(3):
                progress(pipes, step, health={"mean_cosine": 0.25}, valid={"hits@1": 0.5})
            pipes.report_custom_message({"kind": "result"})
    """).success
    started, *steps = observations(materialize)
    line = str(started.pop("progress"))
    assert all(part in line for part in ("cpu (no GPU)", "after epoch 3", "60 s"))
    assert started == {"resumed_from_epoch": 3, "run_dir": "r/1"}
    assert str(steps[-1].pop("progress")).startswith("epoch 1/2, step 2 ")
    assert steps[-1] == {"epoch": 1, "loss": 0.75, "valid_hits@1": 0.5}


def test_observations_are_throttled_and_the_last_is_kept(materialize: Materialize) -> None:
    assert materialize(
        """
        with open_dagster_pipes() as pipes:
            for step in range(50):
                progress(pipes, step)
                time.sleep(0.02)
            pipes.report_custom_message({"kind": "result"})
    """,
        observe_seconds=60.0,
    ).success
    lines = [each["progress"] for each in observations(materialize)]
    assert len(lines) <= 2
    assert "step 49" in lines[-1]


def test_observations_are_written_while_the_worker_runs(materialize: Materialize, tmp_path: Path) -> None:
    """The child ends only once the test has seen its first figures in the event log."""
    seen = threading.Event()

    def watch() -> None:
        for _ in range(200):
            if observations(materialize):
                seen.set()
                break
            time.sleep(0.05)
        (tmp_path / "go").touch()

    watcher = threading.Thread(target=watch)
    watcher.start()
    assert materialize("""
        with open_dagster_pipes() as pipes:
            progress(pipes, 1)
            while not os.path.exists("go"):
                time.sleep(0.05)
            pipes.report_custom_message({"kind": "result"})
    """).success
    watcher.join()
    assert seen.is_set()


def test_a_message_that_is_written_in_pieces_arrives_whole(materialize: Materialize) -> None:
    """The file is looked at while the message is half written, and again when a kill has cut one short."""
    assert materialize("""
        with open_dagster_pipes() as pipes:
            channel = pipes._message_channel
            message = {"__dagster_pipes_version": "0.1", "method": "report_custom_message",
                       "params": {"payload": {"kind": "result", "text": "é" * 20}}}
            line = __import__("json").dumps(message, ensure_ascii=False).encode() + b"\\n"
            for half in (line[:100], line[100:-25], line[-25:]):
                with open(channel._path, "ab") as file:
                    file.write(half)
                time.sleep(0.25)
        with open(channel._path, "ab") as file:
            file.write(line[:50])
    """).success
    assert materialize.reports[0].result["text"] == "é" * 20


@pytest.mark.parametrize("code", [1, 2])
def test_a_mistake_is_told_and_not_retried(materialize: Materialize, code: int) -> None:
    result = materialize(f"""
        with open_dagster_pipes() as pipes:
            pipes.report_custom_message({{"kind": "error", "type": "SettingsError", "message": "heads is 0"}})
        sys.exit({code})
    """)
    assert not result.success
    failure = failure_of(result).user_failure_data
    assert failure.description == "SettingsError: heads is 0"
    assert failure.metadata["exit_code"].value == code
    assert not [e for e in result.all_events if e.event_type_value == "STEP_UP_FOR_RETRY"]


def test_a_crash_shows_the_last_words(materialize: Materialize) -> None:
    result = materialize("""
        with open_dagster_pipes() as pipes:
            for line in range(500):
                print(f"line {line} " + "x" * 200, file=sys.stderr)
        raise RuntimeError("a bug")
    """)
    assert not [e for e in result.all_events if e.event_type_value == "STEP_UP_FOR_RETRY"]
    assert "exit code 1: RuntimeError: a bug" in str(failure_of(result).user_failure_data)
    words = failure_of(result).user_failure_data.metadata["stderr"].value
    assert "RuntimeError: a bug" in words
    assert "line 10 " not in words
    assert len(words) < 4096 + 16


@pytest.mark.parametrize(
    ("ending", "cause"),
    [
        ("sys.exit(75)", "told to stop"),
        ("os.kill(os.getpid(), signal.SIGKILL)", "SIGKILL"),
        (
            "pipes.report_custom_message({'kind': 'error', 'type': 'OutOfMemoryError', 'message': 'x'}); sys.exit(2)",
            "OutOfMemoryError: x",
        ),
    ],
    ids=["stopped", "killed", "out of memory"],
)
def test_what_may_pass_is_retried_and_resumes(materialize: Materialize, ending: str, cause: str) -> None:
    """The first attempt ends badly, the second finds its mark and goes through."""
    result = materialize(f"""
        with open_dagster_pipes() as pipes:
            progress(pipes, 7)
            if not os.path.exists("checkpoint"):
                open("checkpoint", "w").close()
                {ending}
            pipes.report_custom_message({{"kind": "result", "attempt": pipes.retry_number}})
    """)
    assert result.success
    assert materialize.reports[0].result["attempt"] == 1
    (retry,) = [e for e in result.all_events if e.event_type_value == "STEP_UP_FOR_RETRY"]
    output = str(retry.step_retry_data.error.cause.message)
    assert cause in output
    assert "in epoch 1 at step 7" in output


def test_retries_end(materialize: Materialize) -> None:
    result = materialize(
        """
        with open_dagster_pipes() as pipes:
            pass
        sys.exit(75)
    """,
        max_retries=1,
    )
    assert len([e for e in result.all_events if e.event_type_value == "STEP_UP_FOR_RETRY"]) == 1
    assert failure_of(result).user_failure_data.description.endswith("(2 attempts)")


def test_ending_well_without_a_result_is_a_failure(materialize: Materialize) -> None:
    result = materialize("with open_dagster_pipes() as pipes: pass")
    assert "without a result" in failure_of(result).user_failure_data.description


STUBBORN_FAMILY = """
    def sleeper(**how):
        deaf = "import signal, time; signal.signal(signal.SIGINT, signal.SIG_IGN); print(flush=True); time.sleep(600)"
        child = subprocess.Popen([sys.executable, "-c", deaf], stdout=subprocess.PIPE, **how)
        child.stdout.readline()
        return child.pid
    with open_dagster_pipes() as pipes:
        pids = [os.getpid(), sleeper(), sleeper(start_new_session=True)]
        with open("pids.tmp", "w") as file:
            file.write(" ".join(map(str, pids)))
        os.rename("pids.tmp", "pids")
        {then}
"""


def family(tmp_path: Path) -> list[int]:
    return [int(pid) for pid in (tmp_path / "pids").read_text().split()]


def alive(pids: list[int]) -> list[int]:
    return [p for p in pids if psutil.pid_exists(p) and psutil.Process(p).status() != psutil.STATUS_ZOMBIE]


def interrupt_when_ready(tmp_path: Path) -> None:
    """Send ourselves what Dagster sends to a step that is cancelled, once the worker waits beside its family."""

    def interrupt() -> None:
        while not (tmp_path / "ready").exists():
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt).start()


def test_cancelling_leaves_a_checkpoint_and_no_process(materialize: Materialize, tmp_path: Path) -> None:
    """The worker has one child in its group and one in a session of its own, both deaf to SIGINT; it saves and goes."""
    interrupt_when_ready(tmp_path)
    result = materialize(STUBBORN_FAMILY.format(then="save_when_asked()"))
    assert not result.success
    assert (tmp_path / "checkpoint").exists()
    pids = family(tmp_path)
    assert len(pids) == 3
    assert alive(pids) == []


def test_a_worker_that_will_not_stop_is_killed_after_its_grace(materialize: Materialize, tmp_path: Path) -> None:
    interrupt_when_ready(tmp_path)
    deaf = "signal.signal(signal.SIGINT, signal.SIG_IGN); open('ready', 'w').close(); time.sleep(600)"
    assert not materialize(STUBBORN_FAMILY.format(then=deaf), grace_seconds=0.5).success
    assert alive(family(tmp_path)) == []


def test_a_killed_worker_leaves_no_orphan_of_its_group(
    materialize: Materialize, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is killed once the launcher has looked at its family, as it does every second."""
    view = ChildTree.note_descendants

    def looked(tree: ChildTree) -> None:
        complete = (tmp_path / "pids").exists()
        view(tree)
        if complete:
            (tmp_path / "seen").touch()

    monkeypatch.setattr(ChildTree, "note_descendants", looked)
    killed = "while not os.path.exists('seen'): time.sleep(0.05)\n        os.kill(os.getpid(), signal.SIGKILL)"
    result = materialize(STUBBORN_FAMILY.format(then=killed), max_retries=0)
    assert "SIGKILL" in failure_of(result).user_failure_data.description
    assert alive(family(tmp_path)) == []


def test_several_processes_are_the_workers_own_business() -> None:
    assert worker_command() == [sys.executable, "-m", "graphmill.worker"]
    assert worker_command(4) == [sys.executable, "-m", "graphmill.worker", "--processes", "4"]


@pytest.mark.parametrize(
    ("code", "cause", "may_pass"),
    [
        (-signal.SIGTERM, "SIGTERM", True),
        (137, "SIGKILL.*memory", True),
        (3, "exit code 3: .*nothing to stderr", False),
    ],
)
def test_exit_codes_are_explained(code: int, cause: str, may_pass: bool) -> None:
    result = explain(code, WorkerReport())
    assert re.search(cause, result[0])
    assert result[1] is may_pass


@pytest.mark.parametrize("code", [75, 137])
def test_a_lost_peer_is_retried_whosever_exit_code_is_seen(code: int) -> None:
    """The rank that is left reports the loss; the job ends with its code or with that of the killed one."""
    said = {"type": "PeerLostError", "message": "another process has ended", "exit_code": 75}
    assert explain(code, WorkerReport(error=said)) == ("PeerLostError: another process has ended", True)
    mistake = {"type": "SettingsError", "message": "heads is 0", "exit_code": 2}
    assert explain(137, WorkerReport(error=mistake)) == ("SettingsError: heads is 0", False)


def test_the_page_that_torchrun_ends_with_is_passed_over() -> None:
    page = (
        "[rank1]: TypeError: a bug\ntorch.distributed.elastic.ChildFailedError: \n  exitcode : 1 (pid: 7)\n" + "=" * 60
    )
    assert explain(1, WorkerReport(), page)[0].endswith("exit code 1: [rank1]: TypeError: a bug")
    assert explain(1, WorkerReport(), "something odd\n-----\n")[0].endswith("exit code 1: something odd")
