"""Real worker processes for tests: started, watched, signalled, and looked for afterwards."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

PATIENCE = 120.0
PACED = """
import sys
if "graphmill.worker" in sys.orig_argv:
    import time
    from graphmill.training.metrics_log import MetricsLog
    append = MetricsLog.append
    def paced(self, kind, *values):
        append(self, kind, *values)
        time.sleep(0.1 * (kind == "epoch"))
    MetricsLog.append = paced
"""


def environment(**more: str) -> dict[str, str]:
    """One thread a process: these tests share their machine."""
    return {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONFAULTHANDLER": "1", **more}


def paced(folder: Path) -> dict[str, str]:
    """Variables with which a training rests after each epoch: one without an end leaves the processor to what is tested."""
    folder.mkdir(parents=True)
    (folder / "sitecustomize.py").write_text(PACED)
    return {"PYTHONPATH": os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH"))))}


def start(values: dict[str, Any], root: Path, *options: str, **more: str) -> subprocess.Popen[str]:
    """``python -m graphmill.worker OPTIONS --job …`` on these settings, runs under ``root``."""
    root.mkdir(parents=True, exist_ok=True)
    job = root / "job.json"
    job.write_text(json.dumps({"settings": values, "where": "test", "run_root": str(root)}))
    command = [sys.executable, "-m", "graphmill.worker", *options, "--job", str(job)]
    return subprocess.Popen(command, env=environment(**more), stderr=subprocess.PIPE, text=True)


def finish(process: subprocess.Popen[str], seconds: float = PATIENCE) -> tuple[int, str]:
    """Exit code and stderr."""
    _, stderr = process.communicate(timeout=seconds)
    return process.returncode, stderr


def wait_until(condition: Callable[[], Any], process: subprocess.Popen[str], seconds: float = PATIENCE) -> Any:
    """The condition's first true value; fails when the process ends before."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if value := condition():
            return value
        assert process.poll() is None, f"ended with {process.returncode} before: {process.communicate()[1]}"
        time.sleep(0.02)
    raise AssertionError("it did not happen in time")


def run_directory(root: Path) -> Path | None:
    """The one run under ``root``, once it is there."""
    return next((path for path in root.iterdir() if (path / "manifest.json").exists()), None)


def steps_done(root: Path) -> int:
    """Steps that the trace holds so far."""
    run = run_directory(root)
    trace = run / "metrics.jsonl" if run else root / "absent"
    return trace.read_text().count('"kind": "step"') if trace.exists() else 0


def descendants(process: subprocess.Popen[str]) -> list[psutil.Process]:
    """All living processes below this one."""
    return psutil.Process(process.pid).children(recursive=True)


def workers(process: subprocess.Popen[str]) -> dict[int, psutil.Process]:
    """Rank → process of the workers that torchrun started below this one."""
    result = {}
    for child in descendants(process):
        try:
            rank = child.environ().get("RANK")
        except psutil.Error:
            continue
        if rank is not None:
            result[int(rank)] = child
    return result


def assert_gone(processes: list[psutil.Process], seconds: float = 20.0) -> None:
    """None of them lives."""
    _, alive = psutil.wait_procs(processes, timeout=seconds)
    living = [p for p in alive if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]
    assert not living, living


def kill(process: psutil.Process) -> None:
    """SIGKILL."""
    os.kill(process.pid, signal.SIGKILL)


def in_own_mounts(script: str, *arguments: str) -> str:
    """Run a shell script in a mount namespace of its own; skip where the system does not allow one."""
    command = ["unshare", "--mount", "--map-root-user", "sh", "-ec", script, "sh", *arguments]
    try:
        process = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    except FileNotFoundError:
        pytest.skip("unshare is not installed")
    if "unshare" in process.stderr or "mount:" in process.stderr:
        pytest.skip(f"no mount namespaces here: {process.stderr.strip()}")
    assert process.returncode == 0, process.stderr
    return process.stdout
