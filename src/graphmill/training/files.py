"""Writing files so that a kill or a power cut leaves either the old one or the new one, never a torn one.

The way: a temporary file in the same directory, written and fsynced, renamed over the target, directory fsynced.
A writer that was killed leaves only files that end in ``PARTIAL``; whoever holds the run's lock may delete those.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import secrets
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from graphmill.errors import ResourceError

PARTIAL = ".partial"
PART = ".part"
"""End of the names of exports that are being written."""
_OLD_SECONDS = 3600.0


def sync_directory(path: Path) -> None:
    """Make renames in ``path`` durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def partial_file(directory: Path) -> Iterator[tuple[BinaryIO, Path]]:
    """An unbuffered temporary file in ``directory``; gone afterwards unless it was renamed inside the block."""
    path = directory / f".{os.getpid()}-{secrets.token_hex(4)}{PARTIAL}"
    try:
        with open(path, "xb", buffering=0) as file:
            yield file, path
    finally:
        # Absent after the rename; where even deleting fails, the next writer cleans up.
        with contextlib.suppress(OSError):
            path.unlink()


def write_all(file: BinaryIO, data: bytes | memoryview) -> None:
    """Write every byte: an unbuffered file may take fewer than it was given (a full disk, more than 2 GiB)."""
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


def describe_file(path: Path) -> dict[str, Any]:
    """``{"bytes": …, "sha256": …}``."""
    with path.open("rb") as file:
        return {"bytes": path.stat().st_size, "sha256": hashlib.file_digest(file, "sha256").hexdigest()}


def remove_partial_files(directory: Path) -> None:
    """Delete what a killed writer left. Only the holder of the run's lock may: another writer's file looks the same."""
    for path in directory.glob(f".*{PARTIAL}"):
        with contextlib.suppress(OSError):
            path.unlink()


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn a disk's refusal into a sentence.

    Raises:
        ResourceError: names ``path`` and the reason.
    """
    try:
        yield
    except OSError as error:
        why = error.strerror or " ".join(str(error).split())
        raise ResourceError(
            f"{path} cannot be written: {why}; free some space or make it writable, and run the same command again"
        ) from None


@contextlib.contextmanager
def only_writer(directory: Path) -> Iterator[None]:
    """Be the only one who exports into ``directory``, waiting for who does; sweeps what a killed one left."""
    lock = os.open(directory, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):  # a file system without locks: what lies there may be somebody's
            fcntl.flock(lock, fcntl.LOCK_EX)
            sweep(directory)
        yield
    finally:
        os.close(lock)


def sweep(directory: Path, older_than: float = 0.0) -> None:
    """Delete exports that were not finished, last written ``older_than`` seconds ago or more."""
    for path in directory.glob(f".*{PART}"):
        with contextlib.suppress(OSError):
            if time.time() - path.stat().st_mtime >= older_than:
                path.unlink()


def sweep_old(run: Path) -> None:
    """:func:`sweep` the folders of a run that nobody has written for an hour."""
    for folder in (run, *(run / name for name in ("embeddings", "influence", "links", "origin"))):
        sweep(folder, _OLD_SECONDS)
