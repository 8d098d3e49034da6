"""Runs one training in a fresh process, for a search, and ends it on request."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from graphmill.errors import EXIT_OK, StoppedError
from graphmill.runs.launch import OUTCOME_VARIABLE, end_with_parent
from graphmill.training.metrics_log import MetricsLog
from graphmill.training.signals import StopRequest

_POLL_SECONDS = 0.1
_GRACE_SECONDS = 20.0


def run_process(
    values: Mapping[str, Any],
    where: str,
    root: Path,
    tell: Callable[[Mapping[str, Any]], None] = lambda record: None,
    stop: StopRequest | None = None,
    **more: Any,
) -> tuple[dict[str, Any], str]:
    """Train in a fresh process, with a run directory in ``root``. The same settings resume or reuse it. Returns the result
    message, or {} and an error message.

    ``values``: settings that :func:`graphmill.runs.resolve.parse_settings` accepts; with several
    ``acceleration.processes``, the process supervises as many workers. ``tell`` gets the record of each epoch as it
    ends.

    An exception from ``tell`` ends the process and is raised to the caller. ``more``: further fields of the worker's
    job.

    Raises:
        StoppedError: ``stop`` was requested; the process has ended.
    """
    processes = int(values.get("acceleration", {}).get("processes", 1))
    with tempfile.TemporaryDirectory(prefix="graphmill-trial-") as scratch:
        folder = Path(scratch)
        outcome, words = folder / "outcome.json", folder / "stderr.txt"
        job = {"settings": dict(values), "where": where, "run_root": str(root), **more}
        (folder / "job.json").write_text(json.dumps(job), encoding="utf-8")
        several = ["--processes", str(processes)] if processes > 1 else []
        command = [sys.executable, "-m", "graphmill.worker", *several, "--job", str(folder / "job.json")]
        before = {path: len(MetricsLog(path).read("epoch")) for path in root.glob("*/metrics.jsonl")}
        with words.open("wb") as stderr:
            # Without these variables: by them, the trial would believe that Dagster started it.
            environment = {name: value for name, value in os.environ.items() if not name.startswith("DAGSTER_PIPES_")}
            environment[OUTCOME_VARIABLE] = str(outcome)
            process = subprocess.Popen(command, env=environment, stderr=stderr, preexec_fn=end_with_parent)
            try:
                _watch(process, root, before, tell, stop)
            finally:
                _end(process)
        result = json.loads(outcome.read_text(encoding="utf-8"))["result"] if outcome.exists() else {}
        if process.returncode == EXIT_OK and result:
            return result, ""
        return {}, _reason(words.read_text(encoding="utf-8", errors="replace"), process.returncode)


def _watch(
    process: subprocess.Popen[bytes],
    runs: Path,
    before: Mapping[Path, int],
    tell: Callable[[Mapping[str, Any]], None],
    stop: StopRequest | None,
) -> None:
    """Report epochs as they end. ``before``: the number of epochs in each existing log; the log that grows is of this
    training."""
    reported = dict(before)
    while True:
        ended = process.poll() is not None
        for log in runs.glob("*/metrics.jsonl"):
            records = MetricsLog(log).read("epoch")
            for record in records[reported.get(log, 0) :]:
                tell(record)
            reported[log] = max(reported.get(log, 0), len(records))
        if ended:
            return
        if stop is not None and stop.requested:
            raise StoppedError(f"stopped ({stop.reason}); the same command continues after the finished measurements")
        time.sleep(_POLL_SECONDS)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Terminate the process, wait, then kill it: a supervisor of several processes needs the time to end them."""
    if process.poll() is not None:
        return
    process.terminate()
    try:
        process.wait(_GRACE_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _reason(stderr: str, code: int) -> str:
    lines = [line for line in stderr.splitlines() if line.strip()]
    if errors := [line for line in lines if line.startswith("error")]:
        return errors[-1].partition(": ")[2]
    return lines[-1] if lines else f"ended with exit code {code}"
