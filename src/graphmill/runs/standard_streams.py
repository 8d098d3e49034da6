"""Keeps a closed or full standard output or standard error from ending the process."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TextIO


class Spared:
    """A text stream that remembers its first failure (``lost``) instead of raising it. Later output is discarded."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.lost: OSError | None = None

    def write(self, text: str) -> int:
        """Write or discard the text; returns its number of characters."""
        if self.lost is None:
            self._try(self._stream.write, text)
        return len(text)

    def flush(self) -> None:
        """Flush or discard the buffer."""
        self._try(self._stream.flush)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def _try(self, work: Callable[..., Any], *arguments: Any) -> None:
        try:
            work(*arguments)
        except (OSError, ValueError) as error:  # ValueError: the stream has been closed
            self.lost = self.lost or (error if isinstance(error, OSError) else OSError(errno.EBADF, "it is closed"))
            # Text that is still in buffers, here and in libraries, must have a target when the process ends.
            with suppress(OSError, ValueError):
                nowhere = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nowhere, self._stream.fileno())
                os.close(nowhere)


def spare_streams() -> None:
    """Replace the standard streams of this process, so that their failure cannot end it.

    A descriptor that was closed before the start gets ``/dev/null``. Otherwise the next file opened, such as a
    checkpoint, would get its number and the printed text.
    """
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # this returns the lowest free number, which is this one
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name) or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - for as long as we live
        if not isinstance(stream, Spared):
            if hasattr(stream, "reconfigure"):
                stream.reconfigure(errors="backslashreplace")
            setattr(sys, name, Spared(stream))


def lost_output() -> str:
    """Flush standard output. Returns why a part of it is lost; "" if none is, or if the reader has ended (head, less)."""
    stream: Any = sys.stdout
    stream.flush()
    lost: OSError | None = getattr(stream, "lost", None)
    return "" if lost is None or lost.errno == errno.EPIPE else str(lost.strerror)
