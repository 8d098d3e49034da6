"""Reads every file of a project that a manifest lists, and every version, and names the damaged ones. It changes nothing."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

from graphmill.diagnostics.doctor import Finding
from graphmill.errors import GraphmillError, InputError
from graphmill.graph import storage
from graphmill.promotion.versions import CURRENT, Versions
from graphmill.verified_files import MANIFEST, VERSION, damaged, damaged_file, listed_files, read_json_file

_CHECKPOINT_HASH = 16


def examine_project(root: Path) -> list[Finding]:
    """What is damaged in the project ``root``, with what to do.

    Raises:
        InputError: ``root`` is not a folder.
    """
    if not root.is_dir():
        raise InputError(f"{root} is not a folder; name a project, such as `graphmill doctor .`")
    start = root / "data" if (root / "data").is_dir() else root
    files: list[str] = []
    stores: set[Path] = set()
    for path, subfolders, names in os.walk(start):
        folder = Path(path)
        subfolders[:] = sorted(name for name in subfolders if not name.startswith("."))
        if folder.name == "checkpoints":
            files += _checkpoints(folder, sorted(names))
        elif VERSION in names:
            stores.add(folder.parent)
        elif MANIFEST in names:
            files += _listed(folder)
        if os.path.islink(folder / CURRENT):
            stores.add(folder)
    versions = [each for store in sorted(stores) for each in _versions(Versions(store))]
    rows = [Finding("files", False, each) for each in files] or [
        Finding("files", True, "they are as they were written")
    ]
    return rows + (
        [Finding("versions", False, each) for each in versions] or [Finding("versions", True, "all can be read")]
    )


def _listed(folder: Path) -> Iterator[str]:
    """What is wrong with the files that the manifest of a folder lists."""
    try:
        about = read_json_file(folder / MANIFEST, "")
        if isinstance(about, dict) and about.get("format") == storage.FORMAT:
            storage.check_files(folder, storage.read_manifest(folder), "always")
        else:
            files, remedy = listed_files(folder)
            if problem := damaged_file(folder, files, "always"):
                raise damaged(*problem, remedy)
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
