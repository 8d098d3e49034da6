"""A worker on another machine, whose cluster is asked for its state, at most once a second."""

import time

ASK_EVERY_SECONDS = 1.0
LOST_SECONDS = 60.0
"""Seconds without an answer, after which the worker counts as lost."""
LOST = -9
"""Exit code of a worker that was lost with its node, or whose cluster no longer answers: as if it had been killed."""


class RemoteWorker:
    """The common part of such workers. A subclass has ``_state`` and ``_end``."""

    def __init__(self) -> None:
        self._code: int | None = None
        self._polled_at, self._answered_at = 0.0, time.monotonic()
        self._silent = False

    def _state(self) -> int | None:
        """Ask the cluster for the exit code; None while the worker runs. It may raise any error of a client."""
        raise NotImplementedError  # abstract: Ray and Kubernetes each have theirs

    def _end(self, grace_seconds: float) -> None:
        """Ask the cluster to end the worker, which has ``grace_seconds`` to save. It raises nothing."""
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

    def note_descendants(self) -> None:
        """Do nothing: the cluster manages its processes."""

    def stop(self, grace_seconds: float) -> None:
        """Ask it to save and exit, and wait."""
        self._end(grace_seconds)
        until = time.monotonic() + grace_seconds
        while self.poll() is None and time.monotonic() < until:
            time.sleep(0.2)

    def kill(self) -> None:
        """End a worker that runs or may still run. One that has ended is kept, for its log."""
        if self._code is None or self._silent:
            self._end(0)
