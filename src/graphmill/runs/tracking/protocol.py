"""The protocol of experiment trackers. ``mlflow_tracker`` implements it for MLflow; users can write their own class."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, NamedTuple, Protocol

from graphmill.errors import SettingsError
from graphmill.training.settings import TrackerSettings


class Point(NamedTuple):
    """One figure after an epoch. ``time`` is in seconds since 1970."""

    name: str
    value: float
    epoch: int
    time: float


@dataclass(frozen=True)
class About:
    """Name, parameters and tags of a run. ``key`` identifies it: starting it twice makes one run in the tracker."""

    key: str
    name: str
    parameters: Mapping[str, Any]
    tags: Mapping[str, str]


class Tracker(Protocol):
    """A tracker, created with the section ``tracker`` of the settings.

    Any exception means that the tracker is not available now; the same data is sent again later.
    """

    def start(self, about: About) -> str:
        """Create the run, or find the run with this key. Return the tracker's id of the run."""

    def log(self, run: str, points: Sequence[Point]) -> None:
        """Add to the curves."""

    def finish(self, run: str, figures: Mapping[str, float], tags: Mapping[str, str], card: str) -> None:
        """Record the end of the training: final ``figures``, ``tags`` (with paths of files), and a Markdown ``card`` or "".

        It is called again when there is more to record, such as the place of the exported vectors.
        """

    def alias(self, model: str, alias: str, version: str, run: str, tags: Mapping[str, str]) -> None:
        """Give ``version`` of ``model`` (``D/M``) the name ``alias``. ``run``: the id of its run, or ""."""


_MLFLOW = "graphmill.runs.tracking.mlflow_tracker:MlflowTracker"


def open_tracker(settings: TrackerSettings) -> Tracker:
    """Open the tracker of this section. Raises :class:`SettingsError` if its class cannot be imported."""
    made: Tracker = _class(_MLFLOW if settings.writer == "mlflow" else settings.writer)(settings)
    return made


def _class(writer: str) -> Any:
    module, _, name = writer.partition(":")
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise SettingsError(f"tracker.writer: {writer} cannot be imported: {error}") from None


def require_tracker(settings: TrackerSettings) -> None:
    """Raise :class:`SettingsError` if a package is missing on this machine. Contacts no server."""
    if settings.writer == "mlflow" and find_spec("mlflow") is None:
        raise SettingsError('tracker.writer: mlflow is not installed: pip install "graphmill[tracking]"')
    if settings.writer not in ("none", "mlflow"):
        _class(settings.writer)
