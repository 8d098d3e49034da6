"""A tracker for MLflow. It needs only MLflow's client (``mlflow-skinny``)."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import Any, NamedTuple

from graphmill.errors import SettingsError
from graphmill.training.settings import TrackerSettings

_KEY = "graphmill.key"
_CARD = "mlflow.note.content"
_LONGEST = 5000
"""Number of characters of a parameter or tag that every MLflow server accepts."""
_BATCH, _PARAMETERS = 1000, 100
_NOT_IN_NAMES = re.compile(r"[^\w\-. /:]")


class Point(NamedTuple):
    """One figure after an epoch. ``time`` is in seconds since 1970."""

    name: str
    value: float
    epoch: int
    time: float


def require_tracker(settings: TrackerSettings) -> None:
    """Raise :class:`SettingsError` if a package is missing on this machine. Contacts no server."""
    if settings.writer == "mlflow" and find_spec("mlflow") is None:
        raise SettingsError('tracker.writer: mlflow is not installed: pip install "graphmill[tracking]"')


class MlflowTracker:
    """Any exception means that the server is not available now; the same data is sent again later.

    It writes to the server at ``tracker.address``, or ``$MLFLOW_TRACKING_URI``; credentials come from the environment."""

    def __init__(self, settings: TrackerSettings) -> None:
        # MLflow retries for minutes by default. Here this is not needed, because a later attempt follows.
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "10")
        os.environ.setdefault("GIT_PYTHON_REFRESH", "quiet")
        from mlflow import MlflowClient

        address = settings.address or os.environ.get("MLFLOW_TRACKING_URI", "")
        if not address:
            raise SettingsError(
                "tracker.address is empty and $MLFLOW_TRACKING_URI is not set; write http://HOST:PORT or sqlite:///FILE"
            )
        self.client: Any = MlflowClient(address)
        self.experiment = settings.experiment

    def start(self, key: str, name: str, parameters: Mapping[str, Any], tags: Mapping[str, str]) -> str:
        """Create the run, or find the run with this key: starting it twice makes one run. Return MLflow's id of it."""
        result = self.client.get_experiment_by_name(self.experiment)
        experiment = result.experiment_id if result else self.client.create_experiment(self.experiment)
        existing = self.client.search_runs([experiment], f"tags.`{_KEY}` = '{key}'", max_results=1)
        if existing:
            run = str(existing[0].info.run_id)
        else:
            tags = {_KEY: key, **{tag: value[:_LONGEST] for tag, value in tags.items()}}
            run = str(self.client.create_run(experiment, tags=tags, run_name=name).info.run_id)
        from mlflow.entities import Param

        given = [Param(_name(each), str(value)[:_LONGEST]) for each, value in parameters.items()]
        for first in range(0, len(given), _PARAMETERS):
            self.client.log_batch(run, params=given[first : first + _PARAMETERS])
        return run

    def log(self, run: str, points: Sequence[Point]) -> None:
        """Add to the curves."""
        from mlflow.entities import Metric

        metrics = [Metric(_name(p.name), p.value, round(1000 * p.time), p.epoch) for p in points]
        for first in range(0, len(metrics), _BATCH):
            self.client.log_batch(run, metrics=metrics[first : first + _BATCH])

    def finish(self, run: str, figures: Mapping[str, float], tags: Mapping[str, str], card: str) -> None:
        """Record the end of the training: final ``figures``, ``tags`` (with paths of files), and a Markdown ``card`` or "".

        It is called again when there is more to record, such as the place of the exported vectors.
        """
        from mlflow.entities import Metric, RunTag

        reported = {**tags, **({_CARD: card} if card else {})}
        metrics = [Metric(_name(name), value, 0, 0) for name, value in figures.items()]
        self.client.log_batch(run, metrics=metrics, tags=[RunTag(name, v[:_LONGEST]) for name, v in reported.items()])
        self.client.set_terminated(run)


def _name(name: str) -> str:
    """A name that MLflow accepts: ``recall@20`` becomes ``recall_at_20``."""
    return _NOT_IN_NAMES.sub("_", name.replace("@", "_at_"))
