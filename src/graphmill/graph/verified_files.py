"""Which files have been hashed and found whole, so that nobody hashes them again until they change.

Kept in ``.<name>.verified.json`` beside the directory: size, time of change and inode of each file when its bytes were
last found to be those of the manifest. Where it cannot be written (a read-only mount), files are hashed once a process.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

Verify = Literal["changed", "always"]

_of_this_process: dict[str, list[int]] = {}


def sha256(path: Path) -> str:
    """SHA-256 of a file's bytes, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def damaged_file(
    directory: Path, files: Mapping[str, Mapping[str, Any]], verify: Verify = "changed"
) -> tuple[Path, str] | None:
    """The first file of ``directory`` that is not as ``files`` (name → bytes, sha256) says, and how; None where all are.

    ``verify`` "changed": a file whose size, time and inode are those of its last verification is not read. "always": all
    are, which finds what a disk changed by itself.
    """
    book = _Book(directory)
    for name, entry in files.items():
        path = directory / name
        try:
            stat = path.stat()
            if stat.st_size != entry["bytes"]:
                return path, f"it has {stat.st_size} bytes; the manifest says {entry['bytes']}"
            mark = [stat.st_size, stat.st_mtime_ns, stat.st_ino]
            if verify == "changed" and book.has(name, entry["sha256"], mark):
                continue
            if sha256(path) != entry["sha256"]:
                return path, "its SHA-256 is not the one in the manifest"
        except OSError as error:
            return path, "it is missing" if isinstance(
                error, FileNotFoundError
            ) else f"it cannot be read: {error.strerror}"
        book.add(name, entry["sha256"], mark)
    book.write()
    return None


def remember(directory: Path, files: Mapping[str, Mapping[str, Any]]) -> None:
    """Note files that were hashed when they were written, so that the first to open them need not."""
    book = _Book(directory)
    for name, entry in files.items():
        stat = (directory / name).stat()
        book.add(name, entry["sha256"], [stat.st_size, stat.st_mtime_ns, stat.st_ino])
    book.write()


class _Book:
    """The marks of one directory's files, of this process and of those before it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.path = directory.parent / f".{directory.name}.verified.json"
        self.new = False
        self.marks: dict[str, list[Any]] = {}
        with suppress(OSError, ValueError, RecursionError):
            content = json.loads(self.path.read_text(encoding="utf-8"))
            self.marks = content if isinstance(content, dict) else {}

    def has(self, name: str, digest: str, mark: list[int]) -> bool:
        return self.marks.get(name) == [digest, *mark] or _of_this_process.get(self._key(name, digest)) == mark

    def add(self, name: str, digest: str, mark: list[int]) -> None:
        self.new = self.new or self.marks.get(name) != [digest, *mark]
        self.marks[name] = [digest, *mark]
        _of_this_process[self._key(name, digest)] = mark

    def write(self) -> None:
        """Replace the file; whoever comes at the same time has found the same."""
        if not self.new:
            return
        with suppress(OSError):
            number, scratch = tempfile.mkstemp(prefix=self.path.name, dir=self.path.parent)
            try:
                with os.fdopen(number, "w", encoding="utf-8") as file:
                    json.dump(self.marks, file)
                os.replace(scratch, self.path)
            except BaseException:
                os.unlink(scratch)
                raise

    def _key(self, name: str, digest: str) -> str:
        return f"{self.directory / name}|{digest}"
