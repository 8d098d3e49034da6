"""The lock of a folder with one writer at a time: of a run, or of a model's versions."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import psutil

from graphmill.atomic_files import os_error_in_a_sentence
from graphmill.errors import ResourceError, RunLockedError

LOCK = ".lock"
"""The name of the lock's file, which says who holds it."""
_RETRY_SECONDS = 0.02


class Holder(NamedTuple):
    """The process that holds a lock, its machine, and since when (UTC)."""

    pid: int
    host: str
    since: str

    @property
    def has_ended(self) -> bool:
        """Whether the process was of this machine and runs no more; a child of it may still hold the lock."""
        return self.host == socket.gethostname() and not psutil.pid_exists(self.pid)


def holder_of(content: bytes) -> Holder | None:
    """Who holds a lock, by the content of its file; None if it does not say."""
    try:
        return Holder(**json.loads(content))
    except (ValueError, TypeError):
        return None


@contextlib.contextmanager
def locked(folder: Path, what: str, wait_seconds: float = 0.0) -> Iterator[None]:
    """Hold the lock of an existing folder. The system releases it whenever and however the process ends.

    ``what``: the folder in words, for messages.

    Raises:
        RunLockedError: another process (or another lock of this one) held it for ``wait_seconds``; the message names it.
        ResourceError: the folder cannot be written, or its file system has no locks.
    """
    with os_error_in_a_sentence(f"{what} cannot be written", "make it writable or choose another"):
        descriptor = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        _acquire(descriptor, what, wait_seconds)
        holder = Holder(os.getpid(), socket.gethostname(), time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()))
        with contextlib.suppress(OSError):  # on a full disk the lock holds, but its holder is not named
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, json.dumps(holder._asdict()).encode(), 0)
        try:
            yield
        finally:
            os.ftruncate(descriptor, 0)
            # Unlock explicitly: a child process that was forked meanwhile shares the descriptor and would keep the lock.
            fcntl.flock(descriptor, fcntl.LOCK_UN)
    finally:
        os.close(descriptor)


def _acquire(descriptor: int, what: str, wait_seconds: float) -> None:
    until = time.monotonic() + wait_seconds
    while True:
        try:
            return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                raise ResourceError(
                    f"{what} cannot be locked ({error.strerror}); it belongs on a local disk, exports can go anywhere"
                ) from None
        if time.monotonic() >= until:
            raise RunLockedError(_sentence(what, holder_of(os.pread(descriptor, 4096, 0))))
        time.sleep(_RETRY_SECONDS)


def _sentence(what: str, holder: Holder | None) -> str:
    if holder is None:
        return f"{what} is being written by another process; wait for it, or choose another directory"
    whose = "has ended, but a process it started still holds the lock" if holder.has_ended else "is writing it"
    return (
        f"{what} is locked: process {holder.pid} on {holder.host} (since {holder.since}) {whose}; wait for it, stop it, "
        "or choose another directory"
    )
