"""Runs a child process and everything that it starts: watches them, asks them to stop, and leaves no orphans.

A worker may start processes in their own sessions (torchrun does). A signal to the worker's group does not reach them,
and after their parent's end they are in no process tree. So descendants are recorded while they can be found.
"""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

import psutil

from graphmill.launchers.contract import Worker
from graphmill.runs.launch import end_with_parent

STDERR_LINES = 40
STDERR_BYTES = 4096
_GONE = (psutil.Error, OSError)
"""What psutil raises of a process that has ended, or whose id another process or one of its threads has now."""


class ChildTree(Worker):
    """A child process in its own session, with the descendants recorded so far."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: str | None,
        log: Path | None = None,
    ) -> None:
        """``log``: a file for all of the child's output; without one, its standard error goes to that of this process."""
        with contextlib.ExitStack() as opened:
            file = opened.enter_context(log.open("ab")) if log else None
            self._process = subprocess.Popen(
                list(command),
                env=dict(env),
                cwd=cwd,
                stdout=file,
                stderr=subprocess.PIPE,
                start_new_session=True,
                preexec_fn=end_with_parent,  # if this process is killed, the child gets SIGTERM: a worker saves and exits
            )
        self._seen: set[psutil.Process] = set()
        assert self._process.stderr is not None
        self._stderr = _Tail(self._process.stderr, log)
        self.note_descendants()

    @property
    def pid(self) -> int:
        """Process id; also the id of the process group and of the session."""
        return self._process.pid

    def poll(self) -> int | None:
        """The exit code (negative: the signal), or None while it runs."""
        return self._process.poll()

    def stderr_tail(self) -> str:
        """The last lines of standard error, at most ``STDERR_LINES`` lines and ``STDERR_BYTES`` bytes."""
        return self._stderr.text(wait=self._process.poll() is not None)

    def note_descendants(self) -> None:
        """Record the present descendants. Call it now and then while the child runs."""
        with contextlib.suppress(*_GONE):
            self._seen.update(psutil.Process(self.pid).children(recursive=True))

    def ask(self) -> None:
        """Ask the group to stop, and return at once."""
        self.note_descendants()
        if self._process.poll() is None:
            _signal_group(self.pid, signal.SIGINT)

    def stop(self, grace_seconds: float) -> None:
        """Ask the group to stop, give it ``grace_seconds`` to save its state, then kill all that is left."""
        try:
            self.ask()
        finally:
            self.wait(grace_seconds)

    def wait(self, grace_seconds: float) -> None:
        """Wait for a child that was asked to stop; kill all that is left after ``grace_seconds``."""
        try:
            deadline = time.monotonic() + grace_seconds
            while self._process.poll() is None and time.monotonic() < deadline:
                self.note_descendants()
                time.sleep(0.05)
        finally:  # also if a second interrupt ends the wait early
            self.kill()

    def kill(self) -> None:
        """Kill the child and every recorded descendant, at once. Those that have ended are forgotten; it never raises."""
        self.note_descendants()
        if self._process.poll() is None:
            _signal_group(self.pid, signal.SIGKILL)
            self._process.wait()
        left = self._seen | _orphans_of_group(self.pid)
        self._seen = set()
        for process in left:
            with contextlib.suppress(*_GONE):
                process.kill()  # psutil compares the start time, so a process with a reused id is not killed
                self._seen.add(process)
        deadline = time.monotonic() + 5
        for process in list(self._seen):
            with contextlib.suppress(*_GONE):
                process.wait(max(deadline - time.monotonic(), 0))
                self._seen.discard(process)


class _Tail:
    """Copies a stream to this process's standard error, or to the end of a file, and keeps its last lines."""

    def __init__(self, stream: IO[bytes], log: Path | None) -> None:
        self._lines: deque[str] = deque(maxlen=STDERR_LINES)
        self._log = log
        self._thread = threading.Thread(target=self._pump, args=(stream,), daemon=True)
        self._thread.start()

    def _pump(self, stream: IO[bytes]) -> None:
        with stream:
            for line in stream:
                text = line.decode("utf-8", errors="replace")
                self._lines.append(text.rstrip("\n"))
                # If this process's stderr is closed, the last lines are still kept.
                with contextlib.suppress(OSError, ValueError):
                    if self._log:
                        with self._log.open("ab") as file:
                            file.write(line)
                    else:
                        sys.stderr.write(text)
                        sys.stderr.flush()

    def text(self, wait: bool) -> str:
        if wait:
            # A surviving grandchild may keep the pipe open: use the lines read so far.
            self._thread.join(timeout=2)
        encoded = "\n".join(tuple(self._lines)).encode()
        return encoded[-STDERR_BYTES:].decode("utf-8", errors="ignore")


def _signal_group(group: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, number)


def _orphans_of_group(group: int) -> set[psutil.Process]:
    """The processes left in a group whose leader has ended (a group's id is not reused while it has a member)."""
    left = set()
    for pid in psutil.pids():
        with contextlib.suppress(*_GONE):
            if pid != group and os.getpgid(pid) == group:
                left.add(psutil.Process(pid))
    return left
