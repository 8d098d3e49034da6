"""Writes files so that a kill or a power cut leaves the old file or the new one, never a partial one.

It writes and fsyncs a temporary file in the same directory, renames it over the target, and fsyncs the directory. A
killed writer leaves only files that end in ``PARTIAL``. The process that holds the run's lock may delete them.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from graphmill.errors import ResourceError

PARTIAL = ".partial"
PART = ".part"
"""Suffix of the names of exports that are being written."""
_OLD_SECONDS = 3600.0
_EXPORTS = ("embeddings", "influence", "links", "torch_files")
"""Folders of a run that exports write."""


def sync_directory(path: Path) -> None:
    """Make renames in ``path`` durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def partial_file(directory: Path) -> Iterator[tuple[BinaryIO, Path]]:
    """An unbuffered temporary file in ``directory``. It is deleted at the end of the block unless it was renamed there."""
    path = directory / f".{os.getpid()}-{secrets.token_hex(4)}{PARTIAL}"
    try:
        with open(path, "xb", buffering=0) as file:
            yield file, path
    finally:
        # It is absent after the rename. If deleting fails, the next writer cleans up.
        with contextlib.suppress(OSError):
            path.unlink()


def write_all(file: BinaryIO, data: bytes | memoryview) -> None:
    """Write every byte. One write to an unbuffered file may take fewer bytes (full disk, more than 2 GiB)."""
    view = memoryview(data).cast("B")
    while len(view):
        view = view[file.write(view) :]


def write_atomically(path: Path, data: bytes) -> None:
    """Replace ``path`` by ``data``, durably and in one step.

    Raises:
        OSError: nothing was changed, and no temporary file is left.
    """
    with partial_file(path.parent) as (file, temporary):
        write_all(file, data)
        os.fsync(file.fileno())
        os.replace(temporary, path)
    sync_directory(path.parent)


def remove_partial_files(directory: Path) -> None:
    """Delete the files that a killed writer left. Only the holder of the run's lock may call this: a running writer's
    files look the same."""
    for path in directory.glob(f".*{PARTIAL}"):
        with contextlib.suppress(OSError):
            path.unlink()


def writing(path: Path) -> contextlib.AbstractContextManager[None]:
    """:func:`os_error_in_a_sentence` for a file or folder that is written."""
    remedy = "free some space or make it writable, and run the same command again"
    return os_error_in_a_sentence(f"{path} cannot be written", remedy)


@contextlib.contextmanager
def os_error_in_a_sentence(what: str, remedy: str) -> Iterator[None]:
    """Turn an ``OSError`` into an error with a message for the user.

    Raises:
        ResourceError: says ``what`` failed, the system's reason, and the ``remedy``.
    """
    try:
        yield
    except OSError as error:
        why = error.strerror or " ".join(str(error).split())
        raise ResourceError(f"{what}: {why}; {remedy}") from None


@contextlib.contextmanager
def only_writer(directory: Path) -> Iterator[None]:
    """Hold the export lock of ``directory``, waiting for another writer; then delete the files that a killed writer
    left."""
    lock = os.open(directory, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):  # a file system without locks: the files may belong to a running writer
            fcntl.flock(lock, fcntl.LOCK_EX)
            sweep(directory)
        yield
    finally:
        os.close(lock)


def sweep(directory: Path, older_than: float = 0.0) -> None:
    """Delete unfinished exports that were last written ``older_than`` seconds ago or more."""
    for path in directory.glob(f".*{PART}"):
        with contextlib.suppress(OSError):
            if time.time() - path.stat().st_mtime >= older_than:
                path.unlink()


def sweep_old(run: Path) -> None:
    """:func:`sweep` the folders of a run, for files that nobody has written for an hour."""
    for folder in (run, *(run / name for name in _EXPORTS)):
        sweep(folder, _OLD_SECONDS)
