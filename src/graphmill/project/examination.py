"""Looks for what is wrong in a project: processes, runs, locks, files, space, and versions. It changes nothing."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
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
from graphmill.verified_files import MANIFEST, VERSION, damaged, damaged_file, listed_files, read_json_file

LEAST_FREE = 1 << 30
_WORKER = "graphmill.worker"
_CHECKPOINT_HASH = 16


def examine_project(root: Path) -> list[Finding]:
    """What is found in the project ``root``, problems with what to do. Every file that a manifest lists is read.

    Raises:
        InputError: ``root`` is not a folder.
    """
    if not root.is_dir():
        raise InputError(f"{root} is not a folder; name a project, such as `graphmill doctor .`")
    result: dict[str, list[str]] = {"processes": [], "locks": [], "files": [], "versions": []}
    result["processes"] += _orphans(root)
    held, counts = _held_locks(), dict.fromkeys(("listed files", "versions", "locks"), 0)
    if home := _dagster_home(root):
        result["runs"] = _hanging_runs(home)
    for folder, names in _folders(root):
        if LOCK in names:
            counts["locks"] += 1
            result["locks"] += _lock(folder / LOCK, held)
        result["files"] += _leftovers(folder, names)
        if folder.name == "checkpoints":
            counts["listed files"] += len(names)
            result["files"] += _checkpoints(folder, names)
        elif MANIFEST in names and VERSION not in names:
            number, problem = _listed(folder)
            counts["listed files"] += number
            result["files"] += problem
    for store in _stores(root):
        counts["versions"] += len(store.names())
        result["versions"] += _versions(store)
    all_well = {
        "processes": "no training is without the process that started it",
        "runs": "every Dagster run that has not ended has its process",
        "locks": f"{counts['locks']} of runs and models; none is left by a killed process",
        "files": f"{counts['listed files']:,} listed files are as they were written",
        "versions": f"{counts['versions']} can be read",
    }
    rows = [Finding(what, False, each) for what, problems in result.items() for each in problems]
    rows += [Finding(what, True, detail) for what, detail in all_well.items() if result.get(what) == []]
    return [*rows, _space(root)]


def _folders(root: Path) -> Iterator[tuple[Path, list[str]]]:
    """The folders of data below ``root``, with the names of their files."""
    start = root / "data" if (root / "data").is_dir() else root
    for folder, subfolders, names in os.walk(start):
        subfolders[:] = sorted(name for name in subfolders if not name.startswith("."))
        yield Path(folder), sorted(names)


def _space(root: Path) -> Finding:
    free = shutil.disk_usage(root).free
    remedy = "" if free >= LEAST_FREE else "; free some, or remove old runs with graphmill prune"
    return Finding("free space", free >= LEAST_FREE, f"{format_size(free)} on the disk of {root}{remedy}")


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


def _dagster_home(root: Path) -> Path | None:
    """The folder of the project's Dagster history, if it has one in files."""
    home = Path(os.environ.get("DAGSTER_HOME") or root / ".dagster_home").resolve()
    return home if (home / "history").is_dir() else None


def _hanging_runs(home: Path) -> list[str]:
    """Dagster runs that have not ended though their process is gone. A process of its own has Dagster."""
    command = [sys.executable, "-m", "graphmill.orchestration.lost_runs", str(home)]
    environment = os.environ | {"DAGSTER_HOME": str(home)}
    completed = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if completed.returncode:
        why = (completed.stderr.strip().splitlines() or ["no reason is known"])[-1]
        return [f"the Dagster history in {home} cannot be read ({why})"]
    return list(json.loads(completed.stdout))


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


def _listed(folder: Path) -> tuple[int, list[str]]:
    """The number of files that the manifest of a folder lists, and what is wrong with them."""
    try:
        about = read_json_file(folder / MANIFEST, "")
        if isinstance(about, dict) and about.get("format") == storage.FORMAT:
            manifest = storage.read_manifest(folder)
            storage.check_files(folder, manifest, "always")
            return len(manifest["files"]), []
        files, remedy = listed_files(folder)
        if problem := damaged_file(folder, files, "always"):
            raise damaged(*problem, remedy)
        return len(files), []
    except GraphmillError as error:
        return 0, [str(error)]


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


def _stores(root: Path) -> list[Versions]:
    versions = {path.parent for path, names in _folders(root) if VERSION in names}
    live = {path for path, _ in _folders(root) if os.path.islink(path / CURRENT)}
    return [Versions(folder) for folder in sorted(versions | live)]


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
