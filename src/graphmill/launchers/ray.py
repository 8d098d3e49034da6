"""Runs workers on a Ray cluster, by its job API. The processes of a job share a node, as with the other launchers."""

import contextlib
import shlex
import time
from typing import Any

from graphmill.errors import MissingExtraError, ResourceError
from graphmill.launchers.contract import WorkerCommand
from graphmill.launchers.settings import LauncherSettings

STOP_WAIT_SECONDS = 120
"""Seconds that Ray waits for a job that was asked to stop; longer than the grace period that a step gives its worker."""
_TAIL_BYTES = 4096
_ASK_EVERY_SECONDS = 1.0
WAITS_SECONDS = 30.0
"""After this many seconds, a job that has not started is reported as waiting."""
WAITS = "launcher: no node of the Ray cluster has room for this training yet (see `ray status`); it starts when one has"
_LOST_SECONDS = 60.0
"""Seconds without an answer of the dashboard, after which the worker counts as lost."""


class RayWorker:
    """A job of a Ray cluster."""

    def __init__(self, settings: LauncherSettings, job: WorkerCommand) -> None:
        try:
            from ray.job_submission import JobSubmissionClient
        except ImportError:
            raise MissingExtraError('launcher: ray needs Ray here: pip install "graphmill[ray]"') from None
        where = settings.address or "the address in RAY_API_SERVER_ADDRESS"
        try:
            self._client = JobSubmissionClient(settings.address or None)
            ours: dict[str, Any] = {"env_vars": {**job.environment, "RAY_JOB_STOP_WAIT_TIME_S": str(STOP_WAIT_SECONDS)}}
            self._id = self._client.submit_job(
                entrypoint=f"sh -c {shlex.quote(job.shell(settings.python))}",
                runtime_env=ours,
                metadata={"job_name": job.name},
                **_resources(settings, job),
            )
        except Exception as error:  # errors of requests, of Ray, or plain ones, depending on the version
            what = str(error).strip().splitlines()[0][:200] if str(error).strip() else type(error).__name__
            raise ResourceError(
                f"launcher: no Ray cluster takes jobs at {where} ({what}); start one with `ray start --head "
                "--dashboard-host=0.0.0.0` and give its dashboard's address in launcher.address"
            ) from None
        self._asked_at, self._seen_at = 0.0, time.monotonic()
        self._code: int | None = None
        self._pending, self._reported_at = False, self._seen_at

    def poll(self) -> int | None:
        """Ask Ray, at most once a second."""
        if self._code is None and time.monotonic() - self._asked_at >= _ASK_EVERY_SECONDS:
            self._asked_at = time.monotonic()
            try:
                info = self._client.get_job_info(self._id)
            except Exception:  # errors of requests and of Ray: the dashboard may be unavailable only for a moment
                if self._asked_at - self._seen_at > _LOST_SECONDS:
                    self._code = -9
                return self._code
            self._seen_at = self._asked_at
            self._pending = str(info.status) == "PENDING"
            if str(info.status) == "SUCCEEDED":
                self._code = 0
            elif str(info.status) in ("FAILED", "STOPPED"):
                # A driver that was lost with its node has no exit code. It may succeed on another node.
                self._code = int(info.driver_exit_code) if info.driver_exit_code is not None else -9
        return self._code

    def stderr_tail(self) -> str:
        """The end of the job's output."""
        try:
            return str(self._client.get_job_logs(self._id))[-_TAIL_BYTES:]
        except Exception:  # the cluster is gone, so there is no output
            return ""

    def waits_for(self) -> str:
        """Report a job for which no node has enough resources."""
        now = time.monotonic()
        if now - self._reported_at < WAITS_SECONDS:
            return ""
        self._reported_at = now
        return WAITS if self._pending else ""

    def note_descendants(self) -> None:
        """Do nothing: Ray manages its processes."""

    def stop(self, grace_seconds: float) -> None:
        """Send SIGTERM to the job's processes. Ray kills what is left after its own timeout."""
        self.kill()
        until = time.monotonic() + grace_seconds
        while self.poll() is None and time.monotonic() < until:
            time.sleep(0.2)

    def kill(self) -> None:
        """Ask Ray to end the job. If Ray does not answer, the job ends with its cluster or continues."""
        if self.poll() in (None, -9):
            with contextlib.suppress(Exception):
                self._client.stop_job(self._id)


def _resources(settings: LauncherSettings, job: WorkerCommand) -> dict[str, Any]:
    """The resources of all processes together."""
    memory = {"entrypoint_memory": int(job.processes * settings.memory_gib * 2**30)} if settings.memory_gib else {}
    cpus, gpus = job.processes * settings.cpus, job.processes * settings.gpus
    return {"entrypoint_num_cpus": cpus, "entrypoint_num_gpus": gpus, **memory}
