"""Starts a training in several processes under torchrun, forwards signals to them, and reports how it ended.

torchrun always exits with code 1 when a worker fails, and starts its workers in their own sessions. Therefore the
supervisor in this module forwards a stop request, once. It reads the exit code and the result from a file that the
first process of this machine writes (:func:`leave_outcome`).
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil

from graphmill.atomic_files import write_atomically
from graphmill.errors import EXIT_OK, EXIT_STOPPED, GraphmillError
from graphmill.training.signals import StopRequest

OUTCOME_VARIABLE = "GRAPHMILL_OUTCOME_FILE"
EXIT_KILLED = 128 + signal.SIGKILL
_POLL_SECONDS = 0.05
_PR_SET_PDEATHSIG = 1


class WorkerFailedError(GraphmillError):
    """The worker processes failed. It has the exit code of the first one, so that "stopped" stays 75."""

    def __init__(self, code: int) -> None:
        self.exit_code = code
        text = f"the worker processes ended with exit code {code}; their messages are above"
        if code == EXIT_KILLED:
            text = (
                "a worker process was killed before it could say why, most often because the machine was out of memory; "
                "run the same command again to resume from the last checkpoint"
            )
        super().__init__(text)


def supervise(processes: int, arguments: Sequence[str], stop: StopRequest) -> tuple[int, dict[str, Any]]:
    """Run ``processes`` workers and wait; returns the exit code and the result message ({} if there is none).

    A stop request is forwarded once: the workers save and exit with code 75. If this process is killed, so are they.
    """
    from graphmill.training.allocator import allocator_environment
    from graphmill.training.machine import allowed_cores

    with tempfile.TemporaryDirectory(prefix="graphmill-") as folder:
        file = Path(folder) / "outcome.json"
        environment = {
            "OMP_NUM_THREADS": str(max(1, allowed_cores() // processes)),
            **allocator_environment(),
            **os.environ,
            OUTCOME_VARIABLE: str(file),
        }
        launcher = [sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={processes}", "--standalone"]
        command = [*launcher, "-m", "graphmill.worker", *arguments]
        process = subprocess.Popen(command, env=environment, start_new_session=True, preexec_fn=end_with_parent)
        try:
            reported = False
            while process.poll() is None:
                if stop.requested and not reported:
                    process.send_signal(signal.SIGTERM)
                    reported = True
                time.sleep(_POLL_SECONDS)
        finally:
            _end_tree(process)
        if not file.exists():
            # Stopped before the training began: there was nothing to save.
            return (EXIT_STOPPED if stop.requested else process.returncode and EXIT_KILLED), {}
        outcome = json.loads(file.read_text(encoding="utf-8"))
        return int(outcome["code"]), dict(outcome["result"])


def run_processes(
    values: Mapping[str, Any], processes: int, *, where: str, root: str, stop: StopRequest, **more: Any
) -> dict[str, Any]:
    """Train in ``processes`` processes; returns the result message. ``more``: further fields of the worker's job.

    Raises:
        WorkerFailedError: has the exit code of the workers, whose own message has been printed.
    """
    with tempfile.TemporaryDirectory(prefix="graphmill-") as folder:
        job = Path(folder) / "job.json"
        content = {"settings": dict(values), "where": where, "run_root": root, **more}
        job.write_text(json.dumps(content), encoding="utf-8")
        code, result = supervise(processes, ["--job", str(job)], stop)
    if code != EXIT_OK:
        raise WorkerFailedError(code)
    return result


def leave_outcome(code: int, result: Mapping[str, Any]) -> None:
    """Tell the supervisor how this machine's first process ended. Without a supervisor, do nothing."""
    path = os.environ.get(OUTCOME_VARIABLE)
    if not path or os.environ.get("LOCAL_RANK", "0") != "0":
        return
    from graphmill.evaluation.json_values import readable

    write_atomically(Path(path), json.dumps({"code": code, "result": readable(result)}).encode())


def end_with_parent() -> None:
    """Ask the kernel to send this process SIGTERM when its parent dies (Linux only; elsewhere the broken connection
    ends it)."""
    if sys.platform == "linux":
        parent = os.getppid()
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
        if os.getppid() != parent:
            os.kill(os.getpid(), signal.SIGTERM)


def _end_tree(process: subprocess.Popen[bytes]) -> None:
    """Kill what is left of torchrun and its workers, also after a second Ctrl-C during the wait."""
    try:
        children = psutil.Process(process.pid).children(recursive=True)
    except psutil.NoSuchProcess:
        children = []
    if process.poll() is None:
        process.kill()
        process.wait()
    for child in children:
        if child.is_running():
            child.kill()
