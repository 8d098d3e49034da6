"""Source files, local or by fsspec URL: their location, state and content hash."""

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fsspec

from graphmill.errors import InputError
from graphmill.ingest.files import path_text

_BLOCK_BYTES = 1 << 20


@dataclass(frozen=True)
class FileState:
    """The state of a file without reading it: size in bytes, and the time or tag of its version."""

    size: int
    version: str


def located(path: str, root: Path) -> str:
    """``path`` as given if it is a URL or absolute, else below ``root``."""
    return path if "://" in path or Path(path).is_absolute() else str(root / path)


def state(path: str) -> FileState:
    """Size and version of the file at ``path`` (local or URL). Raises :class:`InputError` if there is no such file."""
    try:
        filesystem, inner = fsspec.core.url_to_fs(path)
        filesystem.invalidate_cache()  # a cached listing of an object store would hide a change
        info: dict[str, Any] = filesystem.info(inner)
    except FileNotFoundError:
        raise InputError(
            f"{path_text(path)} does not exist; put the file there, or correct 'path' in the defs.yaml"
        ) from None
    except ImportError as error:
        raise InputError(f"{path_text(path)} cannot be read: {error}") from None
    except Exception as error:  # any error of a file system's client; its text may contain a token
        raise InputError(
            f"{path_text(path)} cannot be read ({type(error).__name__}); check the address and the environment's credentials"
        ) from None
    if info.get("type") == "directory":
        raise InputError(f"{path_text(path)} is a directory; name a file in the defs.yaml")
    version = next((info[key] for key in ("mtime", "ETag", "etag", "LastModified", "updated") if info.get(key)), "")
    return FileState(int(info.get("size") or 0), str(version))


def digest(path: str) -> str:
    """Hex digest (BLAKE2b, 128 bits) of the content of the file at ``path``. Raises :class:`InputError` as above."""
    state(path)
    hasher = hashlib.blake2b(digest_size=16)
    with fsspec.open(path, "rb") as file:
        while block := file.read(_BLOCK_BYTES):
            hasher.update(block)
    return hasher.hexdigest()
