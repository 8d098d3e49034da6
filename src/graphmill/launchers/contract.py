"""The input and the output of a launcher."""

import contextlib
import shlex
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

UNSEEN = 78
"""Exit code of a worker that could not start in its place (EX_CONFIG); its last line gives the reason."""
LOST = -9
"""Exit code of a worker that was lost with its node, or whose cluster no longer answers: as if it had been killed."""
ASK_EVERY_SECONDS = 1.0
LOST_SECONDS = 60.0
"""Seconds without an answer, after which the worker counts as lost."""


@dataclass(frozen=True)
class WorkerCommand:
    """A worker to start.

    ``command`` and ``environment`` are in addition to its machine's environment. ``cwd`` is the project's folder and
    ``messages`` the file for its messages, both as paths on its machine. ``name`` is for display.
    """

    command: Sequence[str]
    environment: Mapping[str, str]
    cwd: str
    messages: str = ""
    processes: int = 1
    name: str = "graphmill"

    def shell(self, python: str) -> str:
        """One line of sh for another machine, which changes to the project's folder, or reports that it is missing, and
        starts the worker.

        ``python`` replaces this machine's interpreter.
        """
        unseen = (
            f"graphmill: this machine does not see {self.cwd} with the file {self.messages}; mount the project's folder "
            "here, or say where it is with launcher.root"
        )
        test = f"cd {shlex.quote(self.cwd)} 2>/dev/null && test -f {shlex.quote(self.messages)}"
        command = shlex.join([python, *self.command[1:]])
        return f"{test} || {{ echo {shlex.quote(unseen)} >&2; exit {UNSEEN}; }}; exec {command}"


class Worker:
    """A started worker."""

    def poll(self) -> int | None:
        """The exit code (negative: the signal), or None while it runs or waits to start."""
        raise NotImplementedError  # abstract: a process of this machine, or a job of a cluster

    def stderr_tail(self) -> str:
        """The last lines of its output, for an error message."""
        raise NotImplementedError  # abstract, as above

    def note_descendants(self) -> None:
        """Record its present descendants. Call it now and then while it runs. A cluster manages its processes itself."""

    def waits_for(self) -> str:
        """A sentence on why it has not started; empty once it runs, or if the reason is not known."""
        return ""

    def stop(self, grace_seconds: float) -> None:
        """Ask it to save and exit; after ``grace_seconds``, kill all that is left."""
        raise NotImplementedError  # abstract, as above

    def kill(self) -> None:
        """Kill all that is left of it, at once. This is harmless if nothing is left."""
        raise NotImplementedError  # abstract, as above


class RemoteWorker(Worker):
    """A worker on another machine, whose cluster is asked for its state, at most once a second."""

    def __init__(self) -> None:
        self._code: int | None = None
        self._polled_at, self._answered_at = 0.0, time.monotonic()
        self._silent = False

    def _state(self) -> int | None:
        """Ask the cluster for the exit code; None while the worker runs. It may raise any error of a client."""
        raise NotImplementedError  # abstract: Ray and Kubernetes each have theirs

    def _end(self, grace_seconds: float) -> None:
        """Ask the cluster to end the worker, which has ``grace_seconds`` to save. It may raise any error of a client."""
        raise NotImplementedError  # abstract, as above

    def poll(self) -> int | None:
        """The exit code, or None while it runs or waits to start."""
        if self._code is None and time.monotonic() - self._polled_at >= ASK_EVERY_SECONDS:
            self._polled_at = time.monotonic()
            try:
                self._code = self._state()
                self._answered_at = self._polled_at
            except Exception:  # the cluster's service may be unavailable only for a moment
                if self._polled_at - self._answered_at > LOST_SECONDS:
                    self._code, self._silent = LOST, True
        return self._code

    def stop(self, grace_seconds: float) -> None:
        """Ask it to save and exit, and wait."""
        with contextlib.suppress(Exception):  # if the cluster does not answer, the job ends with it or continues
            self._end(grace_seconds)
        until = time.monotonic() + grace_seconds
        while self.poll() is None and time.monotonic() < until:
            time.sleep(0.2)

    def kill(self) -> None:
        """End a worker that runs or may still run. One that has ended is kept, for its log."""
        if self._code is None or self._silent:
            with contextlib.suppress(Exception):  # as above
                self._end(0)
