"""The schemas of a run's JSON files, and their reader. A damaged file gives an error message, never a traceback.

``manifest.json`` and ``report.json`` each hold a checksum of their own content. The manifest also holds the checksums
of ``settings.json`` and ``parameter_rows.json``.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, RootModel, ValidationError

from graphmill.errors import InputError

RUN_FORMAT = 2
"""Version of the files of a run directory. A run of another version is refused."""
CHECKSUM = "checksum"
FILES = "files"
_SEALED = ("manifest.json", "report.json")
_LARGEST = 1 << 62
_AGAIN = "run the same training again, which goes on from its checkpoints and writes it anew"


class _Shape(BaseModel):
    """Required fields and their types. A file may hold more fields."""

    model_config = ConfigDict(extra="allow", protected_namespaces=())


class _Data(_Shape):
    path: str
    content_hash: str


class _Resolved(_Shape):
    preset: str
    batching: str


class RunManifest(_Shape):
    """``manifest.json``: identifies the training, its data and its software."""

    format: Literal["graphmill-run"]
    version: int
    fingerprint: str = Field(pattern="[0-9a-f]{64}")
    recipe: str
    algorithm_version: int
    data: _Data
    resolved: _Resolved
    versions: dict[str, str]


class RunReport(_Shape):
    """``report.json``: how a training ended. Numbers may be the words "nan" and "inf"."""

    fingerprint: str
    data_version: str
    reason: str
    epochs_done: int = Field(ge=0, le=_LARGEST)
    steps_done: int = Field(ge=0, le=_LARGEST)
    best_epoch: int = Field(ge=0, le=_LARGEST)
    best_metric: float | None
    selected_on: str = ""
    exported_epoch: int = Field(0, ge=0, le=_LARGEST)
    metrics: dict[str, float]
    health: dict[str, float] = {}
    final_losses: dict[str, float] = {}
    skips: int = 0
    seconds: float
    seconds_per_step: float = 0.0
    seconds_per_epoch: float = 0.0
    peak_memory_bytes: float = 0.0
    memory: list[tuple[float, float, float]] = []
    compile: dict[str, Any] = {}
    shrunk: list[str] = []
    notes: list[str] = []
    device: str = ""
    precision: str = ""


class RunSettings(_Shape):
    """``settings.json``: the settings of the run. The recipe checks its sections."""

    recipe: str
    data: str = ""
    model: dict[str, Any] = {}
    training: dict[str, Any] = {}
    acceleration: dict[str, Any] = {}
    evaluation: dict[str, Any] = {}
    export: dict[str, Any] = {}


class ParameterRows(RootModel[dict[str, tuple[str, list[str]]]]):
    """``parameter_rows.json``: parameter → its label and the keys of its rows."""


class Ranking(_Shape):
    """``ranking.json``."""

    kind: str
    epoch: int


SHAPES: dict[str, type[BaseModel]] = {
    "manifest.json": RunManifest,
    "report.json": RunReport,
    "settings.json": RunSettings,
    "parameter_rows.json": ParameterRows,
    "ranking.json": Ranking,
}


def sealed(name: str, value: Any) -> Any:
    """``value`` with its checksum, if files of this ``name`` have one."""
    return {**value, CHECKSUM: _digest(value)} if name in _SEALED else value


def read_run_file(directory: Path, name: str) -> Any:
    """Read the run's file ``name`` and check its schema. Missing fields get their defaults.

    Raises:
        InputError: the file is missing or damaged; the message says what to do.
    """
    path = directory / name
    value = read_json_file(path, f"{directory} has no {name}: it is not a run directory, or its run never began")
    if name in _SEALED and isinstance(value, dict):
        checksum = value.pop(CHECKSUM, None)
        if checksum != _digest(value) and not (name == "manifest.json" and _other_format(value)):
            raise damaged(path, "its contents are not those that were written")
    if name in ("settings.json", "parameter_rows.json"):
        _require_noted(directory, name)
    if (shape := SHAPES.get(name)) is None:
        return value
    return shaped(shape, value, path)


def read_json_file(path: Path, missing: str) -> Any:
    """The JSON in ``path``. Raises :class:`InputError` with the message ``missing`` if there is no file, or with the
    reason."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(missing) from None
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError):
        raise damaged(path, "it is not JSON") from None


def shaped(shape: type[BaseModel], value: Any, path: Path, remedy: str = _AGAIN) -> Any:
    """``value`` with the defaults of ``shape``. Raises :class:`InputError`, which names the first field that is wrong."""
    if shape is RunManifest and (other := _other_format(value)):
        raise InputError(
            f"{path.parent} has run format {other}, and this graphmill reads format {RUN_FORMAT}: train it again "
            "into another folder, or use the graphmill that wrote it"
        )
    try:
        found = shape.model_validate(value)
    except ValidationError as error:
        problem = error.errors()[0]
        at = ".".join(map(str, problem["loc"]))
        raise damaged(path, f"{at + ': ' if at else ''}{problem['msg'].lower()}"[:200], remedy) from None
    except RecursionError:
        raise damaged(path, "it is nested too deeply", remedy) from None
    return {**found.model_dump(), **value} if isinstance(value, dict) and not isinstance(found, RootModel) else value


def _other_format(value: Any) -> int:
    """The format number of a run's manifest if it is not :data:`RUN_FORMAT`; 0 if it is, or if there is none."""
    version = value.get("version") if isinstance(value, Mapping) and value.get("format") == "graphmill-run" else None
    return version if isinstance(version, int) and version != RUN_FORMAT else 0


def damaged(path: Path, what: str, remedy: str = _AGAIN) -> InputError:
    """The error for a damaged file."""
    return InputError(f"{path} is damaged: {what}; {remedy}")


def file_digest(path: Path) -> str:
    """SHA-256 of a small file's bytes."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _require_noted(directory: Path, name: str) -> None:
    """Compare the file with the manifest's checksum, if there is one."""
    try:
        noted = read_run_file(directory, "manifest.json").get(FILES, {})
    except InputError:
        return
    if isinstance(noted, Mapping) and name in noted and noted[name] != file_digest(directory / name):
        raise damaged(directory / name, "its contents are not those that were written")


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
