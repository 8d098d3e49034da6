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

import psutil

from graphmill.atomic_files import os_error_in_a_sentence
from graphmill.errors import ResourceError, RunLockedError

LOCK = ".lock"
"""The name of the lock's file, which says who holds it: process, machine, and since when (UTC)."""
_RETRY_SECONDS = 0.02


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
        holder = [os.getpid(), socket.gethostname(), time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())]
        with contextlib.suppress(OSError):  # on a full disk the lock holds, but its holder is not named
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, json.dumps(holder).encode(), 0)
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
            raise RunLockedError(_sentence(what, os.pread(descriptor, 4096, 0)))
        time.sleep(_RETRY_SECONDS)


def _sentence(what: str, content: bytes) -> str:
    """The message about a lock that is held; ``content``: that of its file, which may not say by whom."""
    try:
        pid, host, since = json.loads(content)
        ended = host == socket.gethostname() and not psutil.pid_exists(pid)
    except (ValueError, TypeError, OverflowError):
        return f"{what} is being written by another process; wait for it, or choose another directory"
    whose = "has ended, but a process it started still holds the lock" if ended else "is writing it"
    return (
        f"{what} is locked: process {pid} on {host} (since {since}) {whose}; wait for it, stop it, or choose another "
        "directory"
    )
