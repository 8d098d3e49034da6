"""A sensor that ends runs whose process no longer exists.

Dagster's default launcher cannot check its processes. If a run's code server and worker were killed (by a crash, a
reboot or the out-of-memory killer), the run stays STARTED forever, counts against the run queue and keeps its slot of
the accelerator pool. Every run's worker records its process id in the event log when it starts. The sensor checks
whether that process still exists.

Another process could have the same id by now, so the start time of the process is compared, too. Runs that were
launched on other machines (Kubernetes, Docker, a code server elsewhere) are not checked.
"""

import json
import os
import signal
import time
from contextlib import suppress
from dataclasses import dataclass, field

import dagster as dg
import psutil
from dagster import DagsterEventType, DagsterRun, DagsterRunStatus

NAME = "graphmill_lost_runs"
INTERVAL_SECONDS = 20
STEP_GRACE_SECONDS = 75.0
"""Seconds; longer than the grace period in which a worker saves a checkpoint."""
_CLOCK_SECONDS = 30.0
"""Largest difference in seconds between two clocks of one machine: that of the log and that of process start times."""
_GRPC_INFO = ".dagster/grpc_info"
_STARTED = "Started process for run (pid:"
_OPEN = [DagsterRunStatus.STARTING, DagsterRunStatus.STARTED, DagsterRunStatus.CANCELING]


@dataclass(frozen=True)
class Noted:
    """A process in the event log: its id, and a time (seconds since 1970) at which it ran."""

    pid: int
    at: float

    def process(self) -> psutil.Process | None:
        """The process, if it still exists."""
        try:
            candidate = psutil.Process(self.pid)
            is_older = candidate.create_time() <= self.at + _CLOCK_SECONDS
            return (
                candidate if is_older and candidate.status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD) else None
            )
        except psutil.NoSuchProcess:
            return None


@dataclass
class Memory:
    """The sensor's cursor: runs whose worker was seen on this machine, and the time since which a worker is gone."""

    seen: list[str] = field(default_factory=list)
    gone: dict[str, float] = field(default_factory=dict)

    @classmethod
    def read(cls, cursor: str | None) -> "Memory":
        """Parse the cursor; the result is empty if there is none, or if it is of another version."""
        with suppress(ValueError, TypeError, AttributeError):
            content = json.loads(cursor or "{}")
            return cls(list(content.get("seen", [])), dict(content.get("gone", {})))
        return cls()

    def write(self, open_runs: set[str]) -> str:
        """The next cursor, with only the runs that have not ended."""
        gone = {run: since for run, since in self.gone.items() if run in open_runs}
        return json.dumps({"seen": sorted(set(self.seen) & open_runs), "gone": gone})


@dg.sensor(
    name=NAME,
    minimum_interval_seconds=INTERVAL_SECONDS,
    default_status=dg.DefaultSensorStatus.RUNNING,
    description=(
        "Marks runs whose process was killed as failed, within two minutes, so that they block neither the queue nor "
        "the accelerator. Keep it on. The next run resumes from the last checkpoint."
    ),
)
def lost_runs(context: dg.SensorEvaluationContext) -> dg.SensorResult:
    """One tick: check all runs that have not ended."""
    memory = Memory.read(context.cursor)
    runs = context.instance.get_runs(filters=dg.RunsFilter(statuses=_OPEN))
    origin = context.code_location_origin
    location = origin.location_name if origin else ""
    messages = [text for run in runs if (text := check_run(context.instance, run, memory, time.time(), location))]
    return dg.SensorResult(
        skip_reason="; ".join(messages) or f"{len(runs)} runs, and their processes are there",
        cursor=memory.write({run.run_id for run in runs}),
    )


def worker_above(instance: dg.DagsterInstance, run_id: str) -> int:
    """The id of the run's worker if it is this process's parent (a step in the multiprocess executor), else 0.

    In the in-process executor, this process is the worker, and its parent may exit.
    """
    worker, _ = _processes(instance, run_id)
    return worker.pid if worker is not None and worker.pid == os.getppid() else 0


def check_run(instance: dg.DagsterInstance, run: DagsterRun, memory: Memory, now: float, location: str = "") -> str:
    """Check one run, and end it if its process was gone in two ticks. Returns what was done, or "" if the process exists.

    ``location`` is the code location of the sensor. If locations may be on several machines, it checks only its own runs,
    because a process of another machine may have the same id as one of this machine.
    """
    if _GRPC_INFO not in run.tags:
        return ""  # its launcher checks its processes itself
    here = _one_machine(instance) or _socket_is_here(run.tags[_GRPC_INFO])
    if location and not here and (run.remote_job_origin is None or run.remote_job_origin.location_name != location):
        return ""
    worker, steps = _processes(instance, run.run_id)
    if worker is None:
        return ""  # it is still starting; Dagster's run monitoring ends a run that does not start
    if worker.process() is not None:
        memory.seen.append(run.run_id)
        memory.gone.pop(run.run_id, None)
        return ""
    if not (here or run.run_id in memory.seen):
        return ""  # it may be on another machine
    since = memory.gone.setdefault(run.run_id, now)
    if now == since:
        return f"the process of run {run.run_id[:8]} is gone"
    if left := [process for step in steps if (process := step.process()) is not None]:
        # They would continue training without their run, at the same time as the next one.
        for process in left:
            with suppress(psutil.NoSuchProcess):
                process.send_signal(signal.SIGTERM if now - since < STEP_GRACE_SECONDS else signal.SIGKILL)
        return f"stopping what is left of run {run.run_id[:8]}"
    return _end(instance, run, worker)


def _end(instance: dg.DagsterInstance, run: DagsterRun, worker: Noted) -> str:
    current = instance.get_run_by_id(run.run_id)
    if current is None or current.status not in _OPEN:
        return ""  # it ended in the meantime
    message = (
        f"The run's process {worker.pid} is gone: it was killed, or the machine was restarted. The next run resumes."
    )
    if current.status == DagsterRunStatus.CANCELING:
        instance.report_run_canceled(current, message)
    else:
        instance.report_run_failed(current, message)
    if instance.event_log_storage.supports_global_concurrency_limits:
        instance.event_log_storage.free_concurrency_slots_for_run(run.run_id)
    return f"ended run {run.run_id[:8]}, whose process is gone"


def _processes(instance: dg.DagsterInstance, run_id: str) -> tuple[Noted | None, list[Noted]]:
    """The run's worker and the processes of its steps. In the in-process executor, these are the worker itself."""
    entries = instance.all_logs(run_id, of_type={DagsterEventType.ENGINE_EVENT, DagsterEventType.STEP_START})
    worker: Noted | None = None
    steps: list[Noted] = []
    for entry in entries:
        event = entry.dagster_event
        if event is None:
            continue
        if event.event_type == DagsterEventType.STEP_START and event.pid is not None:
            steps.append(Noted(event.pid, entry.timestamp))
        elif (event.message or "").startswith(_STARTED):
            worker = Noted(int("".join(filter(str.isdigit, event.message or ""))), entry.timestamp)
    return worker, [step for step in steps if worker is None or step.pid not in (worker.pid, os.getpid())]


def _one_machine(instance: dg.DagsterInstance) -> bool:
    """Whether the instance is in SQLite files, which only processes of one machine may use."""
    return "sqlite" in type(instance.run_storage).__module__


def _socket_is_here(grpc_info: str) -> bool:
    with suppress(ValueError, AttributeError):  # no JSON, or no object
        return os.path.exists(json.loads(grpc_info).get("socket") or "")
    return False
