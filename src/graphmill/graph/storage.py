"""The files of a typed graph's directory: their names and hashes, and how a directory is published atomically.

This module handles bytes and paths. ``typed_graph`` interprets the arrays.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from graphmill.atomic_files import sync
from graphmill.errors import InputError, RunLockedError
from graphmill.verified_files import MANIFEST, Verify, damaged, read_json_file, remember, verify_files

FORMAT = "graphmill.graph"
VERSION = 1
NODES = "nodes.arrow"

_NOT_CONTENT = ("content_hash", "written_by", "settings", "report")
"""Parts of the manifest that describe how the graph was made. They do not change the content hash."""


PRESENT = "_present"
_REMEDY = "build the graph again from its tables"


def features_file(type_number: int, name: str = "", ending: str = "") -> str:
    """Name of the file with a node type's feature matrix; ``ending`` :data:`PRESENT`: the mask of nodes that have
    features. ``name``: the set's name, if the type has several."""
    return f"features_{type_number:03d}{'.' * bool(name)}{name}{ending}.npy"


def encoder_file(type_number: int, place: int) -> str:
    """Name of the file with the basis of a text, the attribute at ``place`` of a node type."""
    return f"attributes_{type_number:03d}_{place:03d}.npy"


def write_array(directory: Path, name: str, values: npt.NDArray[Any]) -> None:
    """Write ``name`` as NPY; it is synced to disk when this returns."""
    np.save(directory / name, np.ascontiguousarray(values), allow_pickle=False)
    sync(directory / name)


def write_table(directory: Path, name: str, table: pa.Table) -> None:
    """Write ``name`` as an Arrow file with one batch, which can be mapped without a copy; it is synced to disk when
    this returns."""
    path = directory / name
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table.combine_chunks())
    sync(path)


def read_array(path: Path, dtype: str, shape: tuple[int, ...]) -> npt.NDArray[Any]:
    """Map an NPY file into memory, read-only. Raises :class:`InputError` if it does not match the manifest."""
    try:
        values = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise damaged(path, str(error), _REMEDY) from None
    if values.dtype != np.dtype(dtype) or values.shape != shape:
        raise damaged(path, f"it holds {values.dtype}{list(values.shape)}; expected {dtype}{list(shape)}", _REMEDY)
    return values.view(np.ndarray)


def read_table(path: Path) -> pa.Table:
    """Map an Arrow file into memory. Raises :class:`InputError` if it cannot be read."""
    try:
        return pa.ipc.open_file(pa.memory_map(str(path))).read_all()
    except (OSError, pa.ArrowInvalid) as error:
        raise damaged(path, str(error), _REMEDY) from None


def content_hash(manifest: Mapping[str, Any]) -> str:
    """SHA-256 of the graph's content: nodes, relations and hashes of its files, without time, path or settings."""
    content = {name: value for name, value in manifest.items() if name not in _NOT_CONTENT}
    return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def read_manifest(directory: Path) -> dict[str, Any]:
    """The manifest of a graph that this version can read.

    Raises :class:`InputError` if there is none, if it is damaged, or if it has another version of the format.
    """
    path = directory / MANIFEST
    missing = f"{directory} is not a typed graph: it has no {MANIFEST}; build the graph first"
    if not directory.is_dir():
        raise InputError(missing)
    manifest: dict[str, Any] = read_json_file(path, missing, _REMEDY)
    kind = manifest.get("format") if isinstance(manifest, dict) else None
    if kind != FORMAT:
        raise InputError(f"{path} describes {kind!r}, not a typed graph ({FORMAT}); check the path")
    version = manifest.get("version")
    if not isinstance(version, int) or version < VERSION:
        raise InputError(
            f"{directory} has graph format {version!r}, older than {VERSION}: build the graph again from its tables"
        )
    if version > VERSION:
        raise InputError(
            f"{directory} has graph format {version}, written by {manifest.get('written_by', 'a newer version')}; "
            f"this version reads {VERSION}: update graphmill"
        )
    if manifest.get("content_hash") != content_hash(manifest):
        raise damaged(path, "its contents do not match its content_hash", _REMEDY)
    return manifest


def check_files(directory: Path, manifest: Mapping[str, Any], verify: Verify = "changed") -> None:
    """Raise :class:`InputError` for the first damaged file, and name it.

    ``verify``: "changed" reads only files that have changed since their last verification, "always" reads all.
    """
    verify_files(directory, manifest["files"], _REMEDY, verify)


@contextmanager
def building(out: Path) -> Iterator[Path]:
    """An empty directory beside ``out`` to build in. It is removed afterwards unless :func:`publish` moved it.

    Only one builder at a time: another one gets :class:`RunLockedError`. Files left by a killed builder are removed.
    """
    out.parent.mkdir(parents=True, exist_ok=True)
    prefix = f".{out.name}.building-"
    with (out.parent / f".{out.name}.lock").open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise RunLockedError(
                f"another process is building the graph {out}; wait for it, or choose another path"
            ) from None
        for leftover in out.parent.glob(prefix + "*"):
            shutil.rmtree(leftover, ignore_errors=True)
        directory = Path(tempfile.mkdtemp(prefix=prefix, dir=out.parent))
        directory.chmod(0o755)  # mkdtemp's mode 0700 would hide the finished graph from other users
        try:
            yield directory
        finally:
            shutil.rmtree(directory, ignore_errors=True)


def publish(directory: Path, manifest: Mapping[str, Any], out: Path) -> None:
    """Move a finished directory to ``out``. If ``out`` has the same graph, undamaged, keep it.

    Readers see the old graph or the new one, never a partial one. Another graph at ``out`` is replaced. A crash between
    the two renames leaves no graph at ``out``; the next build writes it.

    Raises :class:`InputError` if ``out`` is not a graph, because it must not be replaced.
    """
    if out.exists():
        if not (out / MANIFEST).is_file() and (not out.is_dir() or any(out.iterdir())):
            raise InputError(f"{out} exists and is not a typed graph; choose another path, or remove it")
        with suppress(InputError):
            if read_manifest(out) == manifest:
                check_files(out, manifest, "always")
                return
    (directory / MANIFEST).write_text(json.dumps(manifest, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    sync(directory / MANIFEST)
    sync(directory)
    if out.exists():
        old = Path(tempfile.mkdtemp(prefix=f".{out.name}.building-", dir=out.parent))
        out.rename(old / "old")
        directory.rename(out)
        shutil.rmtree(old, ignore_errors=True)
    else:
        directory.rename(out)
    sync(out.parent)
    remember(out, manifest["files"])
