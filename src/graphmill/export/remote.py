"""Copies local files to a folder, or to a URL of fsspec (``s3://…``, ``gs://…``, ``memory://…``).

All work is done on local disks, and finished files are copied. Object stores show a file only when it is complete. In a
copied folder, the manifest is written last. Credentials come from the environment, as usual for each file system.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import fsspec

from graphmill.atomic_files import PART, copy_atomically
from graphmill.errors import InputError, ResourceError, SettingsError
from graphmill.ingest.files import shown
from graphmill.verified_files import VERSION, damaged_file, listed_files

SMALL_BYTES = 1 << 20
"""A smaller file (in bytes) is always copied again, even if the copy has the same size."""
POINTER = "current.json"
CACHE_VARIABLE = "GRAPHMILL_CACHE"
_OBJECT_STORES = ("s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "adl", "oci", "oss", "r2")
_NOT_COPIED = (PART, ".lock")


def is_url(place: str | Path) -> bool:
    """Whether the text is a URL, not a path."""
    return "://" in str(place)


def require_target(place: str, where: str) -> str:
    """Return ``place`` after checking that this machine has what it needs to write there. Contacts no server.

    Raises:
        SettingsError: no such kind of storage, or its package is not installed.
    """
    if is_url(place):
        scheme = place.partition("://")[0]
        try:
            fsspec.get_filesystem_class(scheme)
        except ImportError as error:
            extra = ' (pip install "graphmill[s3]")' if scheme.startswith("s3") else ""
            raise SettingsError(
                f"{where}: {shown(place)} needs a package that is not installed{extra}: {error}"
            ) from None
        except ValueError:
            raise SettingsError(f"{where}: {shown(place)}: there is no storage of the kind {scheme}://") from None
    return place


@contextlib.contextmanager
def _reaching(place: str, doing: str) -> Iterator[None]:
    """Turn errors of a file system's client into messages that do not repeat a token in the URL."""
    try:
        yield
    except (InputError, ResourceError):
        raise
    except FileNotFoundError:
        raise InputError(f"{shown(place)} does not exist (a bucket, or a folder in it): check the address") from None
    except Exception as error:
        why = (
            error.strerror
            if isinstance(error, OSError) and error.strerror and not is_url(place)
            else type(error).__name__
        )
        raise ResourceError(
            f"{shown(place)} cannot be {doing} ({why}); check the address, the credentials in the environment, and the "
            "space, and run the same command again"
        ) from None


def copy_file(source: Path, target: str | Path) -> None:
    """Copy one file to a path or URL, atomically.

    Raises:
        ResourceError: it cannot be written.
        InputError: its bucket does not exist.
    """
    with _reaching(str(target), "written"):
        if is_url(target):
            system, inner = fsspec.url_to_fs(str(target))
            if (
                str(target).partition("://")[0] not in _OBJECT_STORES
            ):  # object stores have no folders, and this would make a bucket
                system.makedirs(system._parent(inner), exist_ok=True)
            system.put_file(str(source), inner)
            return
        copy_atomically(source, Path(target))


def copy_folder(source: Path, target: str, last: str) -> int:
    """Copy a folder's files, except those that exist there with the same size. ``last`` is written after all others.

    Returns the number of copied files. Links, locks and unfinished files are left out.

    Raises:
        ResourceError, InputError: as :func:`copy_file`.
    """
    with _reaching(target, "read"):
        system, inner = fsspec.url_to_fs(target)
        system.invalidate_cache()
        existing = {name: info["size"] for name, info in system.find(inner, detail=True).items()}
        existing = {
            name.removeprefix(system._strip_protocol(inner)).strip("/"): size for name, size in existing.items()
        }
    files = [path for path in sorted(source.rglob("*")) if path.is_file() and not path.is_symlink()]
    names = {str(path.relative_to(source)): path for path in files if not path.name.endswith(_NOT_COPIED)}
    wanted = [
        name for name, path in names.items()
        if existing.get(name) != path.stat().st_size or path.stat().st_size < SMALL_BYTES
    ]  # fmt: skip
    for name in sorted(wanted, key=lambda name: name == last):
        copy_file(names[name], f"{target.rstrip('/')}/{name}")
    return len(wanted)


def write_pointer(target: str, about: Mapping[str, Any]) -> None:
    """Write ``current.json``, which names the live version, into a folder at a path or URL."""
    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch) / POINTER
        file.write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")
        copy_file(file, f"{target.rstrip('/')}/{POINTER}")


def read_pointer(target: str) -> dict[str, Any]:
    """Read the file of :func:`write_pointer`; {} if nothing is live there."""
    try:
        with _reaching(target, "read"):
            system, inner = fsspec.url_to_fs(f"{target.rstrip('/')}/{POINTER}")
            system.invalidate_cache()
            result = json.loads(system.cat_file(inner))
    except InputError:
        return {}
    return result if isinstance(result, dict) else {}


def remove_folder(target: str) -> None:
    """Remove a copied folder; files that cannot be removed stay."""
    with contextlib.suppress(Exception):
        system, inner = fsspec.url_to_fs(target)
        system.rm(inner, recursive=True)


def fetched(url: str) -> Path:
    """A local copy of a folder at a URL, in ``$GRAPHMILL_CACHE`` or ``~/.cache/graphmill``.

    ``…/D/M/current`` means the version that the pointer names. A version's files are checked against their hashes,
    once.

    Raises:
        InputError: there is nothing, or a file is damaged.
        ResourceError: the place cannot be reached.
    """
    folder = url.rstrip("/")
    if folder.endswith("/current"):
        folder = folder.removesuffix("/current")
        live = read_pointer(folder).get("version")
        if not live:
            raise InputError(f"{shown(folder)} has no live version: it has no {POINTER}")
        folder = f"{folder}/{live}"
    try:
        root = Path(os.environ.get(CACHE_VARIABLE) or Path.home() / ".cache" / "graphmill")
    except RuntimeError:  # no HOME and no account, as in a container with a free user id
        raise ResourceError(f"there is no home to keep {shown(url)} in: name a folder in {CACHE_VARIABLE}") from None
    local = root / hashlib.sha256(folder.encode()).hexdigest()[:16] / folder.rpartition("/")[2]
    if (local / VERSION).is_file():
        return local  # versions never change
    with _reaching(folder, "read"):
        system, inner = fsspec.url_to_fs(folder)
        system.invalidate_cache()
        names = system.find(inner)
        if not names:
            raise InputError(f"{shown(folder)} holds no files: check the address")
        local.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=local.parent) as scratch:
            whole = Path(scratch) / local.name
            for name in names:
                path = whole / name.removeprefix(system._strip_protocol(inner)).strip("/")
                path.parent.mkdir(parents=True, exist_ok=True)
                system.get_file(name, str(path))
            files, remedy = listed_files(whole)
            if result := damaged_file(whole, files):
                raise InputError(f"{shown(folder)}/{result[0].name} is damaged: {result[1]}; {remedy}")
            shutil.rmtree(local, ignore_errors=True)
            os.replace(whole, local)
    return local
