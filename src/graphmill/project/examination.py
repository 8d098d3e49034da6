"""Looks for what is wrong in a project: processes, locks, files, space, and versions. It changes nothing."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import psutil

from graphmill.atomic_files import PART
from graphmill.diagnostics.doctor import Finding
from graphmill.errors import GraphmillError, InputError
from graphmill.graph import storage
from graphmill.locks import LOCK, holder_of
from graphmill.memory import format_size
from graphmill.promotion.versions import CURRENT, Versions
from graphmill.verified_files import MANIFEST, VERSION, listed_files, read_json_file, verify_files

LEAST_FREE = 1 << 30
_WORKER = "graphmill.worker"
_CHECKPOINT_HASH = 16
_WELL = {
    "processes": "no training is without the process that started it",
    "locks": "none is left by a killed process",
    "files": "those that a manifest lists are as they were written",
    "versions": "all can be read",
}


def examine_project(root: Path) -> list[Finding]:
    """What is found in the project ``root``, problems with what to do. Every file that a manifest lists is read.

    Raises:
        InputError: ``root`` is not a folder.
    """
    if not root.is_dir():
        raise InputError(f"{root} is not a folder; name a project, such as `graphmill doctor .`")
    held, stores = _held_locks(), set[Path]()
    problems: dict[str, list[str]] = {"processes": [*_orphans(root)], "locks": [], "files": [], "versions": []}
    for path, subfolders, names in os.walk(root / "data" if (root / "data").is_dir() else root):
        folder = Path(path)
        subfolders[:] = sorted(name for name in subfolders if not name.startswith("."))
        if LOCK in names:
            problems["locks"] += _lock(folder / LOCK, held)
        problems["files"] += _leftovers(folder, sorted(names))
        if folder.name == "checkpoints":
            problems["files"] += _checkpoints(folder, sorted(names))
        elif VERSION in names:
            stores.add(folder.parent)
        elif MANIFEST in names:
            problems["files"] += _listed(folder)
        if os.path.islink(folder / CURRENT):
            stores.add(folder)
    for folder in sorted(stores):
        problems["versions"] += _versions(Versions(folder))
    rows = [Finding(what, False, each) for what, listed in problems.items() for each in listed]
    rows += [Finding(what, True, detail) for what, detail in _WELL.items() if not problems[what]]
    free = shutil.disk_usage(root).free
    remedy = "" if free >= LEAST_FREE else "; free some, or remove old runs with graphmill prune"
    return [*rows, Finding("free space", not remedy, f"{format_size(free)} on the disk of {root}{remedy}")]


# -- processes and locks ---------------------------------------------------------------------------------------------


def _orphans(root: Path) -> Iterator[str]:
    """Workers of this project whose parent has ended, so that process 1 has them."""
    for process in psutil.process_iter(["pid", "ppid", "cmdline", "cwd"]):
        about = process.info
        if _WORKER not in (about["cmdline"] or ()) or about["ppid"] != 1 or not about["cwd"]:
            continue
        if Path(about["cwd"]).is_relative_to(root.resolve()):
            yield (
                f"process {about['pid']} ({' '.join(about['cmdline'])}) works without the process that started it; "
                f"`kill {about['pid']}` ends it with a checkpoint"
            )


def _held_locks() -> dict[int, int] | None:
    """Inode → process of every lock that is held; None where the system does not tell (not Linux)."""
    try:
        rows = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
    except OSError:
        return None
    return {int(row[5].rpartition(":")[2]): int(row[4]) for row in rows if len(row) > 5 and row[1] == "FLOCK"}


def _lock(path: Path, held: dict[int, int] | None) -> Iterator[str]:
    """A lock whose holder was killed, or which another process than the named one holds."""
    try:
        content, inode = path.read_bytes(), path.stat().st_ino
    except OSError:
        return
    holder = holder_of(content)
    if held is None or holder is None or not holder.has_ended:
        return
    if inode not in held:
        yield f"{path}: process {holder.pid} was killed; the lock is free, and the same command goes on from its checkpoint"
    else:
        other = held[inode] or "of another container"
        yield f"{path}: process {holder.pid} has ended, but process {other}, which it started, holds the lock; stop that one"


# -- files -----------------------------------------------------------------------------------------------------------


def _leftovers(folder: Path, names: list[str]) -> Iterator[str]:
    parts = [folder / name for name in names if name.startswith(".") and name.endswith(PART)]
    held = _held_locks()
    for path in parts:
        if held is not None and path.exists() and path.stat().st_ino not in held:
            yield f"{path}: left by a killed process ({format_size(path.stat().st_size)}); the next writer removes it"
    for name in names:
        if name.endswith(".damaged"):
            yield f"{folder / name}: a damaged checkpoint, which is not used; remove it"


def _listed(folder: Path) -> Iterator[str]:
    """What is wrong with the files that the manifest of a folder lists."""
    try:
        about = read_json_file(folder / MANIFEST, "")
        if isinstance(about, dict) and about.get("format") == storage.FORMAT:
            storage.check_files(folder, storage.read_manifest(folder), "always")
        else:
            files, remedy = listed_files(folder)
            verify_files(folder, files, remedy, "always")
    except GraphmillError as error:
        yield str(error)


def _checkpoints(folder: Path, names: list[str]) -> Iterator[str]:
    """Checkpoints whose content has not the hash in their name."""
    for name in names:
        path, digest = folder / name, name.removesuffix(".safetensors").rpartition("-")[2]
        if not name.endswith(".safetensors") or len(digest) != _CHECKPOINT_HASH:
            continue
        with path.open("rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest()[:_CHECKPOINT_HASH] != digest:
                yield f"{path} is damaged; a training goes on from the one before it"


# -- versions --------------------------------------------------------------------------------------------------------


def _versions(store: Versions) -> Iterator[str]:
    """Versions that are damaged or cannot be loaded, and a link to none."""
    from graphmill.usage.exported import Run

    live, bad = "", set[str]()
    try:
        live = store.current_name()
        store.current()
    except GraphmillError as error:
        yield str(error)
        bad.add(live)
    for name in store.names():
        try:
            version = store.read(name)
            version.verify()
            Run(version.path)
        except GraphmillError as error:
            if name not in bad:
                what = "the live version, " if name == live else ""
                yield f"{store.label}/{name}: {what}nothing can load it: {error}"
