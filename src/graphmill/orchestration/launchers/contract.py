"""What a launcher is given, and what it gives back."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

UNSEEN = 78
"""Exit code of a worker that could not begin where it was sent (EX_CONFIG); its last line says why."""


@dataclass(frozen=True)
class WorkerCommand:
    """A worker to be started.

    ``command`` and ``environment`` are what it needs beside its machine's own. ``cwd`` is the project's folder and
    ``messages`` the file that it writes to, both as its machine sees them. ``name`` is for people.
    """

    command: Sequence[str]
    environment: Mapping[str, str]
    cwd: str
    messages: str = ""
    processes: int = 1
    name: str = "graphmill"

    def shell(self, python: str) -> str:
        """One line of sh for another machine: go to the project's folder, or say that it is not there; then begin.

        ``python`` takes the place of this machine's interpreter.
        """
        unseen = (
            f"graphmill: this machine does not see {self.cwd} with the file {self.messages}; mount the project's folder "
            "here, or say where it is with launcher.root"
        )
        look = f"cd {shlex.quote(self.cwd)} 2>/dev/null && test -f {shlex.quote(self.messages)}"
        command = shlex.join([python, *self.command[1:]])
        return f"{look} || {{ echo {shlex.quote(unseen)} >&2; exit {UNSEEN}; }}; exec {command}"


class Worker(Protocol):
    """A worker that was started."""

    def poll(self) -> int | None:
        """The exit code (negative: the signal), or None while it runs or waits for its turn."""

    def stderr_tail(self) -> str:
        """The last lines that it wrote, for a failure's message."""

    def note_descendants(self) -> None:
        """Called now and then while it runs."""

    def waits_for(self) -> str:
        """Why it has not begun, in a sentence; empty once it runs, and where nobody knows."""

    def stop(self, grace_seconds: float) -> None:
        """Ask it to save and end; after ``grace_seconds`` end all that is left."""

    def kill(self) -> None:
        """End all that is left of it, at once; harmless when nothing is."""
