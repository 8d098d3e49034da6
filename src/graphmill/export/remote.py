"""Copies a finished local file to a path, or to a URL of fsspec (``s3://…``, ``gs://…``, ``memory://…``).

Object stores show a file only when it is complete. Credentials come from the environment, as usual for each file system.
"""

from __future__ import annotations

from pathlib import Path

import fsspec

from graphmill.atomic_files import copy_atomically
from graphmill.errors import InputError, ResourceError, SettingsError
from graphmill.ingest.files import path_text

_OBJECT_STORES = ("s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "adl", "oci", "oss", "r2")


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
                f"{where}: {path_text(place)} needs a package that is not installed{extra}: {error}"
            ) from None
        except ValueError:
            raise SettingsError(f"{where}: {path_text(place)}: there is no storage of the kind {scheme}://") from None
    return place


def copy_file(source: Path, target: str | Path) -> None:
    """Copy one file to a path or URL, atomically.

    Raises:
        ResourceError: it cannot be written.
        InputError: its bucket does not exist.
    """
    place = str(target)
    try:
        if not is_url(place):
            copy_atomically(source, Path(place))
            return
        system, inner = fsspec.url_to_fs(place)
        if place.partition("://")[0] not in _OBJECT_STORES:  # these have no folders, and this would make a bucket
            system.makedirs(system._parent(inner), exist_ok=True)
        system.put_file(str(source), inner)
    except (InputError, ResourceError):
        raise
    except FileNotFoundError:
        raise InputError(
            f"{path_text(place)} does not exist (a bucket, or a folder in it): check the address"
        ) from None
    except Exception as error:  # of any file system's client; its text may repeat a token of the URL
        cause = "" if is_url(place) else getattr(error, "strerror", "")
        raise ResourceError(
            f"{path_text(place)} cannot be written ({cause or type(error).__name__}); check the address, the credentials in "
            "the environment, and the space, and run the same command again"
        ) from None
