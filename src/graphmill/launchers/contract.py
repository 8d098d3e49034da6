"""The input and the output of a launcher."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

UNSEEN = 78
"""Exit code of a worker that could not start in its place (EX_CONFIG); its last line gives the reason."""


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


class Worker(Protocol):
    """A started worker."""

    def poll(self) -> int | None:
        """The exit code (negative: the signal), or None while it runs or waits to start."""

    def stderr_tail(self) -> str:
        """The last lines of its output, for an error message."""

    def note_descendants(self) -> None:
        """Record its present descendants. Call it now and then while it runs."""

    def waits_for(self) -> str:
        """A sentence on why it has not started; empty once it runs, or if the reason is not known."""

    def stop(self, grace_seconds: float) -> None:
        """Ask it to save and exit; after ``grace_seconds``, kill all that is left."""

    def kill(self) -> None:
        """Kill all that is left of it, at once. This is harmless if nothing is left."""
