"""The one way to write a file: readers, a kill, a power cut and a full disk leave the old file or the new one.

The content is written to ``.NAME.RANDOM.part`` beside the file, synced, and renamed over it. If the size is known, space
is reserved first, so that a full disk is reported before the work. The writer holds a lock on this part, which the
system releases however the process ends. Whoever writes to the folder next removes the parts that nobody holds.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import io
import os
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from graphmill.errors import ResourceError

PART = ".part"
"""End of the names of files that are being written."""
_NAME_LETTERS = 40
_UNSUPPORTED = (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS)


class PartFile:
    """A file that is being written. :meth:`commit` puts it in its place, :meth:`abort` removes it.

    ``file``: the open file; ``path``: its temporary name, for libraries that open files themselves. They may truncate
    it, and must not replace it.
    """

    def __init__(self, target: Path, size: int = 0) -> None:
        """Make the folder of ``target``, and reserve ``size`` bytes there (0: not known).

        Raises:
            OSError: the folder cannot be written, or has too little space.
        """
        self.target, self._reserved = target, size > 0
        target.parent.mkdir(parents=True, exist_ok=True)
        remove_parts(target.parent)
        self.path, self.file = _locked(target)
        try:
            if self._reserved:
                _reserve(self.file, self.path, size)
        except BaseException:
            self.abort()
            raise

    @contextlib.contextmanager
    def text(self) -> Iterator[IO[str]]:
        """The file as UTF-8 text, whose line ends are written as they are."""
        text = io.TextIOWrapper(self.file, encoding="utf-8", newline="")
        try:
            yield text
            text.flush()
        finally:
            with contextlib.suppress(OSError):  # of a second flush
                text.detach()

    def commit(self, target: Path | None = None) -> Path:
        """Sync the file and rename it to its target; returns the target.

        ``target``: another one in the same folder, instead of the first.

        Raises:
            OSError: it could not be written, and was removed.
        """
        target = target or self.target
        try:
            self.file.flush()
            if self._reserved:
                self.file.truncate()  # the size may have been an estimate
            sync(self.path)
            os.replace(self.path, target)
        finally:
            self.abort()
        sync(target.parent)
        return target

    def abort(self) -> None:
        """Remove what was written. After :meth:`commit`, do nothing."""
        if not self.file.closed:
            with contextlib.suppress(OSError):
                self.path.unlink(missing_ok=True)  # as long as it is locked
            with contextlib.suppress(OSError):  # what is left in its buffer does not fit on a full disk
                self.file.close()


@contextlib.contextmanager
def replacing(target: Path, size: int = 0) -> Iterator[PartFile]:
    """A :class:`PartFile` that takes the place of ``target`` at the end of the block. An exception removes it."""
    part = PartFile(target, size)
    try:
        yield part
        part.commit()
    finally:
        part.abort()


def write_atomically(path: Path, data: bytes) -> None:
    """Replace ``path`` by ``data``, durably and in one step.

    Raises:
        OSError: nothing was changed, and no temporary file is left.
    """
    with replacing(path, len(data)) as part:
        part.file.write(data)


def copy_atomically(source: Path, path: Path) -> None:
    """Replace ``path`` by a copy of ``source``. Raises :class:`OSError` as :func:`write_atomically` does."""
    with source.open("rb") as file, replacing(path, source.stat().st_size) as part:
        shutil.copyfileobj(file, part.file, 1 << 20)


def write_all(file: IO[bytes], data: bytes | memoryview) -> None:
    """Write every byte. One write to an unbuffered file may take fewer bytes (full disk, more than 2 GiB)."""
    view = memoryview(data).cast("B")
    while len(view):
        view = view[file.write(view) :]


def remove_parts(directory: Path) -> None:
    """Delete the parts in ``directory`` whose writers have ended. A file system without locks keeps them."""
    with contextlib.suppress(OSError):
        for name in os.listdir(directory):
            if name.startswith(".") and name.endswith(PART):
                with contextlib.suppress(OSError), open(directory / name, "rb") as file:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    (directory / name).unlink(missing_ok=True)


@contextlib.contextmanager
def only_writer(directory: Path) -> Iterator[None]:
    """Make ``directory``, and hold its export lock, waiting for another writer. Its errors are those of :func:`writing`."""
    with writing(directory):
        directory.mkdir(parents=True, exist_ok=True)
        lock = os.open(directory, os.O_RDONLY)
        try:
            with contextlib.suppress(OSError):  # a file system without locks
                fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)


# -- errors ----------------------------------------------------------------------------------------------------------


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


# -- parts -----------------------------------------------------------------------------------------------------------


def _locked(target: Path) -> tuple[Path, IO[bytes]]:
    """A new part of ``target``, and its open file, which holds its lock."""
    while True:
        path = target.with_name(f".{target.name[:_NAME_LETTERS]}.{secrets.token_hex(4)}{PART}")
        file = open(path, "xb")  # noqa: SIM115 - closed by abort()
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.stat(path), os.fstat(file.fileno())):
                return path, file
        except FileNotFoundError:
            pass
        except OSError as error:
            if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                return path, file  # a file system without locks
        file.close()  # remove_parts() of another process was faster than the lock


def _reserve(file: IO[bytes], path: Path, size: int) -> None:
    # The attempt alone would fill the disk for a moment, and fail what others write to it.
    if shutil.disk_usage(path.parent).free < size:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    try:
        os.posix_fallocate(file.fileno(), 0, size)
    except (AttributeError, OSError) as error:  # AttributeError: macOS
        if isinstance(error, OSError) and error.errno not in _UNSUPPORTED:
            raise


def sync(path: Path) -> None:
    """Make what was written to a file, or renamed in a folder, durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
