"""Runs workers on a Ray cluster, by its job API. The processes of a job share a node, as with the other launchers."""

import shlex
import time
from typing import Any

from graphmill.errors import ResourceError, one_line, require
from graphmill.launchers.contract import LOST, RemoteWorker, WorkerCommand
from graphmill.launchers.settings import LauncherSettings

STOP_WAIT_SECONDS = 120
"""Seconds that Ray waits for a job that was asked to stop; longer than the grace period that a step gives its worker."""
_TAIL_BYTES = 4096
WAITS_SECONDS = 30.0
"""After this many seconds, a job that has not started is reported as waiting."""
WAITS = "launcher: no node of the Ray cluster has room for this training yet (see `ray status`); it starts when one has"


class RayWorker(RemoteWorker):
    """A job of a Ray cluster."""

    def __init__(self, settings: LauncherSettings, job: WorkerCommand) -> None:
        require("launcher: ray", "ray", "ray")
        super().__init__()
        where = settings.address or "the address in RAY_API_SERVER_ADDRESS"
        try:
            from ray.job_submission import JobSubmissionClient

            self._client = JobSubmissionClient(settings.address or None)
            memory = int(job.processes * settings.memory_gib * 2**30)
            resources: dict[str, Any] = {"entrypoint_memory": memory} if memory else {}
            self._id = self._client.submit_job(
                entrypoint=f"sh -c {shlex.quote(job.shell(settings.python))}",
                runtime_env={"env_vars": {**job.environment, "RAY_JOB_STOP_WAIT_TIME_S": str(STOP_WAIT_SECONDS)}},
                metadata={"job_name": job.name},
                entrypoint_num_cpus=job.processes * settings.cpus,
                entrypoint_num_gpus=job.processes * settings.gpus,
                **resources,
            )
        except Exception as error:  # errors of requests, of Ray, or plain ones, depending on the version
            raise ResourceError(
                f"launcher: no Ray cluster takes jobs at {where} ({one_line(error)}); start one with `ray start --head "
                "--dashboard-host=0.0.0.0` and give its dashboard's address in launcher.address"
            ) from None
        self._pending, self._started = False, time.monotonic()

    def _state(self) -> int | None:
        info = self._client.get_job_info(self._id)
        self._pending = str(info.status) == "PENDING"
        if str(info.status) == "SUCCEEDED":
            return 0
        if str(info.status) not in ("FAILED", "STOPPED"):
            return None
        # A driver that was lost with its node has no exit code. It may succeed on another node.
        return int(info.driver_exit_code) if info.driver_exit_code is not None else LOST

    def _end(self, grace_seconds: float) -> None:
        """Send SIGTERM to the job's processes. Ray kills what is left after its own timeout."""
        self._client.stop_job(self._id)

    def stderr_tail(self) -> str:
        """The end of the job's output."""
        try:
            return str(self._client.get_job_logs(self._id))[-_TAIL_BYTES:]
        except Exception:  # the cluster is gone, so there is no output
            return ""

    def waits_for(self) -> str:
        """Report a job for which no node has enough resources."""
        return WAITS if self._pending and time.monotonic() - self._started >= WAITS_SECONDS else ""
