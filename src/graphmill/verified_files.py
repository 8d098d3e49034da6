"""The one way to open a file that a manifest lists: its size and SHA-256 are compared before it is read.

Exports and runs have a ``manifest.json``, versions a ``version.json``, each with ``files``: name → bytes and sha256. A
file is hashed again when its size, times or inode change, and after :data:`VALID_SECONDS`, because bits on a disk can
change without a trace. ``.<name>.verified.json`` beside the directory holds what was verified. If it cannot be written
(a read-only mount), files are hashed once per process.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

from graphmill.atomic_files import write_atomically
from graphmill.errors import InputError

Verify = Literal["changed", "always"]
Files = Mapping[str, Mapping[str, Any]]
VALID_SECONDS = 7 * 24 * 3600.0
"""A file is hashed again when its last verification is older than this."""
CHECKSUM = "checksum"
VERSION, MANIFEST = "version.json", "manifest.json"
REMEDIES = {
    "graphmill-version": "roll back, and promote the run again",
    "graphmill-embeddings": "run `graphmill train` with the same settings, or materialize the embeddings",
    "graphmill-scorer": "run `graphmill train` with the same settings",
    "graphmill-run": "run the same training again, which goes on from its checkpoints and writes it anew",
}
"""The format of a manifest → what to do about a damaged file of its folder."""
_KINDS = {
    "graphmill.graph": "a graph",
    "graphmill-run": "a run",
    "graphmill-embeddings": "an export",
    "graphmill-scorer": "an export",
    "graphmill-version": "a version",
}
_PLAIN = re.compile(r"[^/\\\0]+")
_of_this_process: dict[str, list[Any]] = {}


def describe_file(path: Path) -> dict[str, Any]:
    """``{"bytes": …, "sha256": …}``: what a manifest says of a file."""
    with path.open("rb") as file:
        return {"bytes": path.stat().st_size, "sha256": hashlib.file_digest(file, "sha256").hexdigest()}


# -- manifests -------------------------------------------------------------------------------------------------------


def damaged(path: Path, what: str, remedy: str = REMEDIES["graphmill-run"]) -> InputError:
    """The error for a damaged file."""
    return InputError(f"{path} is damaged: {what}; {remedy}")


def read_json_file(path: Path, missing: str, remedy: str = REMEDIES["graphmill-run"]) -> Any:
    """The JSON in ``path``. Raises :class:`InputError` with the message ``missing`` if there is no file, or with the
    reason."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):  # a pipe would be waited for
            raise InputError(f"{path} cannot be read: it is not a file")
        text = path.read_text(encoding="utf-8")
        value = json.loads(text)
        if r"\ud" in text.lower():  # half of a character, which no answer and no file could hold
            json.dumps(value, ensure_ascii=False).encode()
        return value
    except FileNotFoundError:
        raise InputError(missing) from None
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError):
        raise damaged(path, "it is not JSON", remedy) from None


def sealed(value: Mapping[str, Any]) -> dict[str, Any]:
    """``value`` with the checksum of its content, for a manifest."""
    return {**value, CHECKSUM: _digest(value)}


def read_sealed(path: Path, missing: str, remedy: str = REMEDIES["graphmill-run"], wanted: str = "") -> dict[str, Any]:
    """The content of a JSON file that was :func:`sealed`, without its checksum. Raises :class:`InputError` if it is
    missing (``missing``), damaged, or a manifest of another kind than ``wanted``, such as "a run"."""
    value = read_json_file(path, missing, remedy)
    if not isinstance(value, dict):
        raise damaged(path, "it is not a JSON object", remedy)
    kind = _KINDS.get(str(value.get("format")), "")
    if wanted and kind not in ("", wanted):
        raise InputError(missing if kind == "a run" else f"{path.parent} is {kind}, not {wanted}; check the path")
    try:
        whole = value.pop(CHECKSUM, None) == _digest(value)
    except (ValueError, RecursionError):
        whole = False
    if not whole:
        raise damaged(path, "its contents are not those that were written", remedy)
    return value


def _digest(value: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def listed_files(folder: Path) -> tuple[dict[str, dict[str, Any]], str]:
    """The files that a folder's manifest lists, and what to do about a damaged one.

    There are none without a manifest, or with one of another program. Raises :class:`InputError` for a manifest that is
    damaged.
    """
    path = folder / VERSION if (folder / VERSION).is_file() else folder / MANIFEST
    if not path.is_file():
        return {}, ""
    value = read_json_file(path, f"{path} is missing")
    kind = value.get("format") if isinstance(value, dict) else None
    if not isinstance(kind, str) or kind not in REMEDIES:
        return {}, ""
    remedy = REMEDIES[kind]
    value = read_sealed(path, f"{path} is missing", remedy)
    result: dict[str, dict[str, Any]] = {}
    for part in (value.get("files"), value.get("aligned"), _of(value.get("joined"), "new")):
        result |= part if isinstance(part, dict) else {}
    return result, remedy


def _of(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, dict) else None


def verified_file(folder: Path, name: str) -> Path:
    """The path of a file that the folder's manifest lists, after its hash was compared.

    Raises :class:`InputError`: it is not listed, missing or damaged.
    """
    files, remedy = listed_files(folder)
    if name not in files:
        raise InputError(f"{folder / name} is not listed in the manifest of its folder{remedy and f'; {remedy}'}")
    verify_files(folder, {name: files[name]}, remedy)
    return folder / name


# -- files -----------------------------------------------------------------------------------------------------------


def verify_files(directory: Path, files: Files, remedy: str, verify: Verify = "changed") -> None:
    """Compare the files of ``directory`` with ``files``: name → bytes, sha256.

    ``verify`` "changed": a file that was verified in the last week, and has the same size, times and inode since, is
    not read. "always": all files are read. Raises :class:`InputError` for the first file that differs.
    """
    book = _Book(directory)
    for name, entry in files.items():
        path = directory / name
        if not _PLAIN.fullmatch(name) or name in (".", ".."):
            raise damaged(path, "its name is not that of a file in this folder", remedy)
        try:
            status = path.stat()
            if not stat.S_ISREG(status.st_mode):
                raise damaged(path, "it is not a file", remedy)
            if status.st_size != (size := _of(entry, "bytes")):
                raise damaged(path, f"it has {status.st_size} bytes; the manifest says {size}", remedy)
            digest, mark = str(_of(entry, "sha256")), _mark(status)
            if verify == "changed" and book.has(name, digest, mark):
                continue
            if describe_file(path)["sha256"] != digest:
                raise damaged(path, "its SHA-256 is not the one in the manifest", remedy)
        except FileNotFoundError:
            raise damaged(path, "it is missing", remedy) from None
        except OSError as error:
            raise damaged(path, f"it cannot be read: {error.strerror}", remedy) from None
        book.add(name, digest, mark)
    book.write()


def remember(directory: Path, files: Files) -> None:
    """Record files that were hashed when they were written, so that the first reader need not hash them."""
    book = _Book(directory)
    for name, entry in files.items():
        book.add(name, entry["sha256"], _mark((directory / name).stat()))
    book.write()


def note_of(directory: Path) -> Path:
    """The file that holds what was verified of a directory."""
    return directory.parent / f".{directory.name}.verified.json"


def _mark(status: os.stat_result) -> list[int]:
    # A copy has another inode and another change time, which no program can set.
    return [status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino]


class _Book:
    """The records of one directory's files, by this process and earlier ones: name → time, hash, size, times, inode."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.path, self.new = directory.absolute(), note_of(directory), False
        self.marks: dict[str, list[Any]] = {}
        with suppress(OSError, ValueError, RecursionError):
            content = json.loads(self.path.read_text(encoding="utf-8"))
            self.marks = content if isinstance(content, dict) else {}

    def has(self, name: str, digest: str, mark: list[int]) -> bool:
        records = self.marks.get(name), _of_this_process.get(str(self.directory / name))
        return any(_holds(record, [digest, *mark]) for record in records)

    def add(self, name: str, digest: str, mark: list[int]) -> None:
        self.new = True
        self.marks[name] = _of_this_process[str(self.directory / name)] = [time.time(), digest, *mark]

    def write(self) -> None:
        """Replace the file. A process that writes at the same time has found the same."""
        with suppress(OSError):
            if self.new:
                write_atomically(self.path, json.dumps(self.marks).encode())


def _holds(record: Any, wanted: list[Any]) -> bool:
    if not isinstance(record, list) or record[1:] != wanted or not isinstance(record[0], int | float):
        return False
    return 0 <= time.time() - record[0] < VALID_SECONDS
