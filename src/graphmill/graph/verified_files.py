"""Records which files have been hashed and found undamaged, so that they are not hashed again until they change.

``.<name>.verified.json`` beside the directory holds the size, modification time and inode of each file at its last
successful verification. If it cannot be written (a read-only mount), files are hashed once per process.
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
    """The first file of ``directory`` that differs from ``files`` (name → bytes, sha256), and the difference; None if
    none does.

    ``verify`` "changed": a file with the size, time and inode of its last verification is not read. "always": all files
    are read, which also finds silent corruption by the disk.
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
    """Record files that were hashed when they were written, so that the first reader need not hash them."""
    book = _Book(directory)
    for name, entry in files.items():
        stat = (directory / name).stat()
        book.add(name, entry["sha256"], [stat.st_size, stat.st_mtime_ns, stat.st_ino])
    book.write()


class _Book:
    """The records of one directory's files, by this process and earlier ones."""

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
        """Replace the file. A process that writes at the same time has found the same."""
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
