"""The manifests of exports (``manifest.json``) and versions (``version.json``): their fields, and their readers."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from graphmill.atomic_files import write_atomically
from graphmill.errors import InputError
from graphmill.training.run_files import shaped
from graphmill.verified_files import MANIFEST, REMEDIES, VERSION, describe_file, read_sealed, sealed

EMBEDDINGS, SCORER = "embeddings", "scorer"
"""The folder of a run's export: of vectors, or of the weights of a system without vectors."""
EXPORT_FORMAT, VERSION_FORMAT, SCORER_FORMAT = "graphmill-embeddings", "graphmill-version", "graphmill-scorer"
FORMAT_NUMBER = 1
"""Of all three formats. Folders of another number are refused."""


class ExportedFile(BaseModel):
    """Size and SHA-256 of one file."""

    bytes: int = Field(ge=0)
    sha256: str


class _Data(BaseModel):
    path: str
    content_hash: str


class _Joined(BaseModel):
    known: int = Field(ge=0)
    nodes: dict[str, int]
    new: dict[str, ExportedFile]


class ExportManifest(BaseModel):
    """The fields of an export's manifest, and their types. Those with a default may be absent; others are kept.

    ``rows``: the number of nodes. ``dim``: the width of their vectors; 0 for an export of weights, which has none.
    """

    model_config = ConfigDict(extra="allow")

    format: Literal["graphmill-embeddings", "graphmill-scorer"]
    version: int
    rows: int = Field(ge=0)
    dim: int = Field(ge=0)
    files: dict[str, ExportedFile]
    system: str
    fingerprint: str
    epoch: int
    relations: list[tuple[str, str, str]] = []
    aligned: dict[str, ExportedFile] = {}
    joined: _Joined | None = None
    data: _Data | None = None
    settings: dict[str, Any] = {}
    versions: dict[str, str] = {}
    graph: dict[str, Any] = {}
    alignment: dict[str, Any] = {}


def export_folder(path: Path) -> Path:
    """The folder of a run's export, of vectors or of weights; ``path`` itself for a version, or for an export alone."""
    if (path / SCORER / MANIFEST).is_file():
        return path / SCORER
    return path / EMBEDDINGS if (path / EMBEDDINGS).is_dir() else path


def write_manifest(
    directory: Path, format: str, shape: tuple[int, int], files: Iterable[str], about: Mapping[str, Any]
) -> dict[str, Any]:
    """Write and return the manifest of an export of ``shape`` (rows, dim), after its ``files``. ``about``: more fields."""
    listed = {name: describe_file(directory / name) for name in files}
    head = {"format": format, "version": FORMAT_NUMBER, "rows": shape[0], "dim": shape[1], "files": listed}
    manifest = {**head, **about}
    write_atomically(directory / MANIFEST, (json.dumps(sealed(manifest), indent=2, sort_keys=True) + "\n").encode())
    return manifest


def read_manifest(directory: Path) -> dict[str, Any]:
    """The manifest of an exported directory.

    Raises:
        InputError: there is no complete export.
    """
    path = directory / MANIFEST
    remedy = REMEDIES[SCORER_FORMAT if directory.name == SCORER else EXPORT_FORMAT]
    value = read_sealed(path, f"{directory} holds no finished export; {remedy}", remedy, "an export")
    require_number(path, value, "export")
    shaped(ExportManifest, value, path, remedy)
    return {name: field for name, field in value.items() if field is not None}


def require_number(path: Path, value: dict[str, Any], what: str) -> None:
    """Raise :class:`InputError` for a manifest of another format's number, and name both."""
    if (number := value.get("version")) != FORMAT_NUMBER or isinstance(number, bool):
        raise InputError(
            f"{path.parent} has {what} format {str(number)[:20]}, and this graphmill reads {FORMAT_NUMBER}: use the "
            "graphmill that wrote it, or train and promote again"
        )


class VersionManifest(BaseModel):
    """The fields of ``version.json``. What is absent gets its default; other fields are kept."""

    model_config = ConfigDict(extra="allow")

    format: Literal["graphmill-version"]
    version: int
    files: dict[str, ExportedFile]
    content: str
    made: str
    system: str = ""
    run_dir: str = ""
    fingerprint: str = ""
    epoch: int = 0
    snapshot: str = ""
    left: dict[str, Any] = {}
    rows: int = 0
    dim: int = 0
    selection_metric: str = ""
    metrics: dict[str, float] = {}
    graph: dict[str, Any] = {}
    resolved: dict[str, str] = {}
    software: dict[str, str] = {}
    derived: list[str] = []


def read_version(folder: Path) -> dict[str, Any]:
    """``version.json`` of a version. Raises :class:`InputError` if it is missing or damaged."""
    path, remedy = folder / VERSION, REMEDIES[VERSION_FORMAT]
    value = read_sealed(path, f"{folder} is not a version that graphmill promoted", remedy, "a version")
    require_number(path, value, "version")
    manifest: dict[str, Any] = shaped(VersionManifest, value, path, remedy)
    return manifest
