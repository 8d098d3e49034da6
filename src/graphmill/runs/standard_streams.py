"""Keeps a closed or full standard output or standard error from ending the process."""

from __future__ import annotations

import errno
import os
import sys
import warnings
from typing import Any, TextIO


class Spared:
    """A text stream whose failure is remembered (``lost``) and not raised; from then on it goes nowhere."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.lost: OSError | None = None

    def write(self, text: str) -> int:
        """Write, or lose it; returns the number of characters."""
        if self.lost is None:
            try:
                return self._stream.write(text)
            except OSError as error:
                self._lose(error)
            except ValueError:  # the stream has been closed
                self._lose(OSError(errno.EBADF, "it is closed"))
        return len(text)

    def flush(self) -> None:
        """Flush, or lose what was not written."""
        try:
            self._stream.flush()
        except OSError as error:
            self._lose(error)
        except ValueError:
            self._lose(OSError(errno.EBADF, "it is closed"))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def _lose(self, error: OSError) -> None:
        self.lost = self.lost or error
        try:
            # What is still in buffers, here and in libraries, has to go somewhere when the process ends.
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self._stream.fileno())
            os.close(nowhere)
        except (OSError, ValueError):
            pass


def spare_streams() -> None:
    """Make the standard streams of this process such that none of them can end it.

    A descriptor that was closed before the start gets ``/dev/null``: else the next file opened, a checkpoint say, would
    get its number and whatever is printed.
    """
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest free number, which is this one
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name) or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - for as long as we live
        if not isinstance(stream, Spared):
            if hasattr(stream, "reconfigure"):
                stream.reconfigure(errors="backslashreplace")
            setattr(sys, name, Spared(stream))


def say_warnings_in_a_line() -> None:
    """Print a setting's warnings as one line each. Processes that another one started leave that to it."""
    from graphmill.settings import RenamedSetting

    def line(message: Any, category: type[Warning], *place: Any, **more: Any) -> str:
        ours = issubclass(category, RenamedSetting)
        return f"warning: {message}\n" if ours else usual(message, category, *place, **more)

    usual = warnings.formatwarning
    warnings.formatwarning = line
    if "RANK" in os.environ:
        warnings.simplefilter("ignore", RenamedSetting)


def lost_output() -> str:
    """Flush standard output; why a part of it is lost, or "" where none is, or where the reader left (head, less)."""
    stream: Any = sys.stdout
    stream.flush()
    lost: OSError | None = getattr(stream, "lost", None)
    return "" if lost is None or lost.errno == errno.EPIPE else str(lost.strerror)
