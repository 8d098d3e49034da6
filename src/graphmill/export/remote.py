"""Copies of local files elsewhere: a folder, or a URL of fsspec (``s3://…``, ``gs://…``, ``memory://…``).

Work is done on local disks; what is finished is copied. Object stores show a file once it is whole, and in a copied folder
the file that vouches for the others is written last. Credentials are in the environment, as each file system has them.
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

from graphmill.errors import InputError, ResourceError, SettingsError
from graphmill.ingest.files import shown
from graphmill.training.files import PART, PARTIAL, describe_file

SMALL_BYTES = 1 << 20
"""A file below this is copied again although one of its size is there."""
POINTER = "current.json"
CACHE_VARIABLE = "GRAPHMILL_CACHE"
_OBJECT_STORES = ("s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "adl", "oci", "oss", "r2")
_NOT_COPIED = (PART, PARTIAL, ".lock")


def is_url(place: str | Path) -> bool:
    """Whether it is a URL and no path."""
    return "://" in str(place)


def require_target(place: str, where: str) -> str:
    """``place`` if it can be written to as far as this machine is concerned; reaches no server.

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
    """Turn what a file system's client raises into a sentence that repeats no token of the URL."""
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
    """Copy one file to a path or URL, whole or not at all.

    Raises:
        ResourceError: it cannot be written.
        InputError: its bucket does not exist.
    """
    with _reaching(str(target), "written"):
        if is_url(target):
            system, inner = fsspec.url_to_fs(str(target))
            if (
                str(target).partition("://")[0] not in _OBJECT_STORES
            ):  # they have no folders, and this would make a bucket
                system.makedirs(system._parent(inner), exist_ok=True)
            system.put_file(str(source), inner)
            return
        local = Path(target)
        local.parent.mkdir(parents=True, exist_ok=True)
        scratch = local.with_name(f".{local.name}.{os.getpid()}{PART}")
        try:
            shutil.copyfile(source, scratch)
            os.replace(scratch, local)
        finally:
            scratch.unlink(missing_ok=True)


def copy_folder(source: Path, target: str, last: str) -> int:
    """Copy a folder's files, those that are there in the same size left out; ``last`` is written when all others are there.

    Returns how many were copied. Links, locks and unfinished files are left out.

    Raises:
        ResourceError, InputError: as :func:`copy_file`.
    """
    with _reaching(target, "read"):
        system, inner = fsspec.url_to_fs(target)
        system.invalidate_cache()
        there = {name: info["size"] for name, info in system.find(inner, detail=True).items()}
        there = {name.removeprefix(system._strip_protocol(inner)).strip("/"): size for name, size in there.items()}
    files = [path for path in sorted(source.rglob("*")) if path.is_file() and not path.is_symlink()]
    names = {str(path.relative_to(source)): path for path in files if not path.name.endswith(_NOT_COPIED)}
    wanted = [
        name for name, path in names.items()
        if there.get(name) != path.stat().st_size or path.stat().st_size < SMALL_BYTES
    ]  # fmt: skip
    for name in sorted(wanted, key=lambda name: name == last):
        copy_file(names[name], f"{target.rstrip('/')}/{name}")
    return len(wanted)


def write_pointer(target: str, about: Mapping[str, Any]) -> None:
    """Write ``current.json`` into a folder at a path or URL: which of its versions is live."""
    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch) / POINTER
        file.write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")
        copy_file(file, f"{target.rstrip('/')}/{POINTER}")


def read_pointer(target: str) -> dict[str, Any]:
    """What :func:`write_pointer` wrote; {} where nothing is live there."""
    try:
        with _reaching(target, "read"):
            system, inner = fsspec.url_to_fs(f"{target.rstrip('/')}/{POINTER}")
            system.invalidate_cache()
            found = json.loads(system.cat_file(inner))
    except InputError:
        return {}
    return found if isinstance(found, dict) else {}


def remove_folder(target: str) -> None:
    """Remove a copied folder; what cannot be removed stays."""
    with contextlib.suppress(Exception):
        system, inner = fsspec.url_to_fs(target)
        system.rm(inner, recursive=True)


def fetched(url: str) -> Path:
    """A local copy of a folder at a URL, in ``$GRAPHMILL_CACHE`` or ``~/.cache/graphmill``.

    ``…/D/M/current`` is the version that its pointer names. A version's files are checked against their hashes, once.

    Raises:
        InputError: nothing is there, or a file is damaged.
        ResourceError: it cannot be reached.
    """
    folder = url.rstrip("/")
    if folder.endswith("/current"):
        folder = folder.removesuffix("/current")
        live = read_pointer(folder).get("version")
        if not live:
            raise InputError(f"{shown(folder)} has no live version: it has no {POINTER}")
        folder = f"{folder}/{live}"
    root = Path(os.environ.get(CACHE_VARIABLE) or Path.home() / ".cache" / "graphmill")
    local = root / hashlib.sha256(folder.encode()).hexdigest()[:16] / folder.rpartition("/")[2]
    if (local / "version.json").is_file():
        return local  # versions never change
    with _reaching(folder, "read"):
        system, inner = fsspec.url_to_fs(folder)
        system.invalidate_cache()
        names = system.find(inner)
        if not names:
            raise InputError(f"{shown(folder)} holds no files: check the address")
        local.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=local.parent) as scratch:
            for name in names:
                path = Path(scratch) / name.removeprefix(system._strip_protocol(inner)).strip("/")
                path.parent.mkdir(parents=True, exist_ok=True)
                system.get_file(name, str(path))
            _verify(Path(scratch), folder)
            shutil.rmtree(local, ignore_errors=True)
            shutil.copytree(scratch, local)
    return local


def _verify(folder: Path, url: str) -> None:
    """Check a version's files. Raises :class:`InputError`, naming the first that is not as it was promoted."""
    if not (folder / "version.json").is_file():
        return
    about = json.loads((folder / "version.json").read_text(encoding="utf-8"))
    for name, expected in about["files"].items():
        if not (folder / name).is_file() or describe_file(folder / name) != expected:
            raise InputError(f"{shown(url)}/{name} is missing or has changed since its promotion: promote it again")
