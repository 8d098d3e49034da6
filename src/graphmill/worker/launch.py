"""Starts a training the way its settings ask for: here, or in several processes under torchrun."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from graphmill.errors import EXIT_OK, GraphmillError


class WorkerFailedError(GraphmillError):
    """A worker process ended badly; its own message has been printed. Carries its exit code."""

    def __init__(self, code: int) -> None:
        super().__init__(f"the worker processes ended with exit code {code}; what they said is above")
        self.exit_code = code


def torchrun_command(
    processes: int, arguments: list[str], *, nodes: str = "", extra: list[str] | None = None
) -> list[str]:
    """``python -m torch.distributed.run … -m graphmill.worker ARGUMENTS``.

    ``nodes`` empty: this machine alone (``--standalone``). Otherwise ``extra`` holds torchrun's own rendezvous options.
    """
    command = [sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={processes}"]
    command += [f"--nnodes={nodes}", *(extra or [])] if nodes else ["--standalone"]
    return [*command, "-m", "graphmill.worker", *arguments]


def run_processes(values: Mapping[str, Any], processes: int, *, root: str = "") -> None:
    """Train in ``processes`` worker processes and wait.

    Raises:
        WorkerFailedError: with the worst exit code, so that "stopped, to be resumed" stays 75.
    """
    from graphmill.training.device import allowed_cores

    with tempfile.TemporaryDirectory(prefix="graphmill-") as folder:
        job = Path(folder) / "job.json"
        job.write_text(json.dumps({"settings": dict(values), "run_root": root}), encoding="utf-8")
        exit_file = Path(folder) / "exit"
        environment = {
            "OMP_NUM_THREADS": str(max(1, allowed_cores() // processes)),
            **os.environ,
            "GRAPHMILL_EXIT_FILE": str(exit_file),
        }
        process = subprocess.Popen(torchrun_command(processes, ["--job", str(job)]), env=environment)
        try:
            code = process.wait()
        except KeyboardInterrupt:
            # The terminal has sent SIGINT to the whole group: the workers save and end by themselves.
            code = process.wait()
        # torchrun ends with 1 whatever its workers say; rank 0 leaves its own code.
        if exit_file.exists():
            code = int(exit_file.read_text())
    if code != EXIT_OK:
        raise WorkerFailedError(code)
