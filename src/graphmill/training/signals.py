"""Handles SIGTERM and SIGINT as a request to stop. The engine checks it between steps, saves and exits with code 75."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from types import FrameType
from typing import Any

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class StopRequest:
    """A flag that a signal sets. As a context manager it installs the handlers and restores the old ones.

    The second Ctrl-C raises ``KeyboardInterrupt`` at once, for a user who does not want to wait for the checkpoint.
    Handlers can be installed only in the main thread; elsewhere call :meth:`request`. A signal that the parent process
    ignores (``nohup``, a shell's background job) stays ignored.

    ``last``: the process ends after the block, and keeps the handlers until then. So torchrun, which ends the others when
    one process has died, does not end this one before it has left its exit code.
    """

    def __init__(self, *, last: bool = False) -> None:
        self.requested, self.last = False, last
        self.reason = ""
        self.at = 0.0  # time.monotonic() of the first request
        self._interrupts = 0
        self._before: dict[signal.Signals, Any] = {}

    def request(self, reason: str = "request") -> None:
        """Request a stop. The first reason is kept."""
        if not self.requested:
            self.reason, self.at = reason, time.monotonic()
            self.requested = True

    def __enter__(self) -> StopRequest:
        if threading.current_thread() is threading.main_thread():
            for number in _SIGNALS:
                before = signal.getsignal(number)
                if before is not signal.SIG_IGN:
                    signal.signal(number, self._handle)
                    self._before[number] = before
        return self

    def __exit__(self, *raised: object) -> None:
        if self.last:
            return
        for number, before in self._before.items():
            # None: installed by C code; Python cannot restore it.
            with contextlib.suppress(ValueError):
                signal.signal(number, signal.SIG_DFL if before is None else before)
        self._before.clear()

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGINT:
            self._interrupts += 1
            if self._interrupts > 1:
                raise KeyboardInterrupt
        self.request(signal.Signals(number).name)
