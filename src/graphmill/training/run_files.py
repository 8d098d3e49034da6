"""The schemas of a run's JSON files, and their reader. A damaged file gives an error message, never a traceback.

``manifest.json`` and ``report.json`` each hold a checksum of their own content. The manifest also holds the hashes of
``settings.json`` and ``parameter_rows.json``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, RootModel, ValidationError

from graphmill.errors import InputError
from graphmill.verified_files import REMEDIES, damaged, describe_file, listed_files, read_json_file, read_sealed

RUN_FORMAT = 3
"""Version of the files of a run directory, checkpoints included. A run of another version is refused."""
SEALED = ("manifest.json", "report.json")
"""Files that hold a checksum of their content."""
_LARGEST = 1 << 62


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
    system: str
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
    """``settings.json``: the settings of the run. The system checks its sections."""

    system: str
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


class Answer(Ranking):
    """``question.json``."""

    question: dict[str, Any]
    answer: dict[str, Any]


SHAPES: dict[str, type[BaseModel]] = {
    "manifest.json": RunManifest,
    "report.json": RunReport,
    "settings.json": RunSettings,
    "parameter_rows.json": ParameterRows,
    "ranking.json": Ranking,
    "question.json": Answer,
}


def read_run_file(directory: Path, name: str) -> Any:
    """Read the run's file ``name`` and check its schema. Missing fields get their defaults.

    Raises:
        InputError: the file is missing or damaged; the message says what to do.
    """
    path = directory / name
    missing = f"{directory} has no {name}: it is not a run directory, or its run never began"
    if name == "manifest.json":
        _require_format(path, read_json_file(path, missing))
    value = read_sealed(path, missing, wanted="a run") if name in SEALED else read_json_file(path, missing)
    if name in ("settings.json", "parameter_rows.json"):
        _require_listed(directory, name)
    if (shape := SHAPES.get(name)) is None:
        return value
    return shaped(shape, value, path)


def shaped(shape: type[BaseModel], value: Any, path: Path, remedy: str = REMEDIES["graphmill-run"]) -> Any:
    """``value`` with the defaults of ``shape``. Raises :class:`InputError`, which names the first field that is wrong."""
    try:
        content = shape.model_validate(value)
    except ValidationError as error:
        problem = error.errors()[0]
        at = ".".join(map(str, problem["loc"]))
        raise damaged(path, f"{at + ': ' if at else ''}{problem['msg'].lower()}"[:200], remedy) from None
    except RecursionError:
        raise damaged(path, "it is nested too deeply", remedy) from None
    return (
        {**content.model_dump(), **value} if isinstance(value, dict) and not isinstance(content, RootModel) else value
    )


def _require_format(path: Path, value: Any) -> None:
    """Raise :class:`InputError` for the manifest of a run of another format, whose other files may differ, too."""
    version = value.get("version") if isinstance(value, dict) and value.get("format") == "graphmill-run" else None
    if isinstance(version, int) and version != RUN_FORMAT:
        raise InputError(
            f"{path.parent} has run format {version}, and this graphmill reads format {RUN_FORMAT}: train it again "
            "into another folder, or use the graphmill that wrote it"
        )


def _require_listed(directory: Path, name: str) -> None:
    """Compare the file with its hash in the manifest, unless the manifest itself is damaged."""
    try:
        files, _ = listed_files(directory)
    except InputError:
        return
    if name in files and files[name] != describe_file(directory / name):
        raise damaged(directory / name, "its contents are not those that were written")
