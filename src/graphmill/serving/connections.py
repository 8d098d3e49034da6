"""uvicorn's connection with deadlines and a bound on their number, so that slow clients lock nobody out."""

from __future__ import annotations

import asyncio
import resource
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

HEADER_SECONDS, BODY_SECONDS = 10.0, 30.0
"""Seconds for all headers of a request, also on a connection that is kept open; and for its body, or to read on in an
answer."""
MOST_CONNECTIONS = 1000
SPARE_FILES = 200
"""Open files that connections leave for the versions' files and libraries."""


def most_connections() -> int:
    """The largest number of connections that leaves files to open. It raises this process's soft limit first."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_CONNECTIONS + SPARE_FILES
    if resource.RLIM_INFINITY != soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return MOST_CONNECTIONS if soft == resource.RLIM_INFINITY else max(min(MOST_CONNECTIONS, soft - SPARE_FILES), 1)


class BoundedConnection(H11Protocol):
    """A connection that is closed if its request takes too long to arrive, or if it waits the longest when there are more
    than ``most``."""

    most = MOST_CONNECTIONS

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._awaited = ""
        self._since = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._reading: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Accept the connection. If there are too many, the one that has waited longest for its client is closed."""
        super().connection_made(transport)
        self._watch()
        if len(self.connections) > self.most:
            waiting = [each for each in self.connections if isinstance(each, BoundedConnection) and each._timer]
            min(waiting, key=lambda each: each._since)._expire()

    def data_received(self, data: bytes) -> None:
        """Read a part of a request; this does not move its deadline."""
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        super().on_response_complete()
        self._watch()

    def pause_writing(self) -> None:
        """Wait for the client to read its answer, for a while."""
        super().pause_writing()
        self._reading = self.loop.call_later(BODY_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        """Go on: the client has read."""
        super().resume_writing()
        if self._reading is not None:
            self._reading.cancel()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._stop()
        if self._reading is not None:
            self._reading.cancel()
        super().connection_lost(exc)

    def _watch(self) -> None:
        """Start the deadline of what the client has to send next, if that is something else than before."""
        awaited = "CLOSED" if self.transport.is_closing() else repr(self.conn.their_state)  # the names of h11's states
        if awaited == self._awaited:
            return
        self._stop()
        self._awaited = awaited
        seconds = {"IDLE": HEADER_SECONDS, "SEND_BODY": BODY_SECONDS, "CLOSED": BODY_SECONDS}.get(awaited)
        if seconds is not None:
            self._since = self.loop.time()
            self._timer = self.loop.call_later(seconds, self._expire)

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _expire(self) -> None:
        self._stop()
        if self.transport.get_write_buffer_size() and len(self.connections) <= self.most:
            self._timer = self.loop.call_later(BODY_SECONDS, self.transport.abort)  # it still reads the answer
        else:
            self.transport.abort()
