"""Sends a run's parameters, curves and results to MLflow in a background thread, in addition to the run's own files.
It needs only MLflow's client (``mlflow-skinny``).

The run's ``tracker.json`` records what was sent; ``metrics.jsonl`` has the rest. So nothing is lost if the server is
down: the next attempt, the next start of the same run, or ``graphmill track RUN`` sends the rest.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import shlex
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from graphmill.atomic_files import write_atomically
from graphmill.errors import InputError, SettingsError
from graphmill.evaluation.json_values import flat
from graphmill.export.manifests import export_folder
from graphmill.training.metrics_log import MetricsLog
from graphmill.training.settings import TrackerSettings

FILE = "tracker.json"
CARD = "card.md"
END_SECONDS = 20.0
"""Seconds that a finished training waits for its tracker. An interrupted training waits a tenth of it."""
EVERY_SECONDS = 10.0
"""Seconds between two updates."""
LONGEST_PAUSE = 300.0
_TABLES = {"losses": "loss", "valid": "valid", "health": "health", "per_second": "per_second"}
_NUMBERS = ("learning_rate", "seconds", "memory_bytes")
_KEY = "graphmill.key"
_CARD = "mlflow.note.content"
_LONGEST = 5000
"""Number of characters of a parameter or tag that every MLflow server accepts."""
_BATCH, _PARAMETERS = 1000, 100
_NOT_IN_NAMES = re.compile(r"[^\w\-. /:]")


def tracker_of(run: Path) -> TrackerSettings:
    """The section ``tracker`` of a run's settings file. Raises :class:`InputError` if there is no such file."""
    try:
        written = json.loads((run / "settings.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{run} is not a run directory: its settings.json cannot be read ({error})") from None
    return TrackerSettings.model_validate(written.get("tracker", {}))


def send(run: Path, settings: TrackerSettings, tracker: MlflowTracker | None = None) -> int:
    """Send what the tracker does not have yet, and return the number of epochs sent.

    Raises:
        Exception: any exception of the tracker, such as an unreachable server. Data sent before it is recorded as sent.
    """
    tracker = tracker or MlflowTracker(settings)
    state = _state(run, settings)
    if not state["run"]:
        state["run"] = tracker.start(state["key"], *_about(run))
        _note(run, state)
    new = [record for record in MetricsLog(run / "metrics.jsonl").read("epoch") if record["epoch"] > state["epoch"]]
    if new:
        tracker.log(state["run"], [point for record in new for point in _points(record)])
        state["epoch"] = new[-1]["epoch"]
        _note(run, state)
    if (run / "report.json").is_file():
        figures, tags = _results(run)
        card = (run / CARD).read_text(encoding="utf-8") if (run / CARD).is_file() else ""
        reported = json.dumps([figures, tags, card], sort_keys=True)
        if reported != state["sent"]:
            tracker.finish(state["run"], figures, tags, card)
            state["sent"] = reported
            _note(run, state)
    return len(new)


@contextlib.contextmanager
def mirrored(run: Path, settings: TrackerSettings, note: Callable[[str], None]) -> Iterator[None]:
    """Send every :data:`EVERY_SECONDS` while the block runs, and the rest at its end. Errors of the tracker are not
    raised."""
    if settings.writer == "none":
        yield
        return
    mirror = _Mirror(run, settings)
    wait = END_SECONDS / 10
    try:
        yield
        wait = END_SECONDS
    finally:
        if problem := mirror.end(wait):
            note(f"tracker: {problem}; nothing is lost: `graphmill track {shlex.quote(str(run))}` sends the rest")


def send_soon(run: Path, seconds: float = END_SECONDS) -> str:
    """:func:`send` results that were made after the training, by the run's own settings. Returns an error message or ""."""
    with contextlib.suppress(InputError, ValueError):
        settings = tracker_of(run)
        if settings.writer != "none":
            return _Mirror(run, settings).end(seconds)
    return ""


class _Mirror(threading.Thread):
    """A daemon thread that sends regularly from now on. It ends with the process."""

    def __init__(self, run: Path, settings: TrackerSettings) -> None:
        super().__init__(name="graphmill-tracker", daemon=True)
        self._run, self._settings = run, settings
        self._over = threading.Event()
        self._problem = ""
        self.start()

    def run(self) -> None:
        tracker: MlflowTracker | None = None
        pause = EVERY_SECONDS
        last = False
        while not last:
            last = self._over.wait(pause)
            try:
                tracker = tracker or MlflowTracker(self._settings)
                send(self._run, self._settings, tracker)
                pause, self._problem = EVERY_SECONDS, ""
            except Exception as error:  # an error of the tracker must not stop the training
                pause = min(2 * pause, LONGEST_PAUSE)
                self._problem = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"

    def end(self, seconds: float) -> str:
        """Send the rest within ``seconds``. Returns an error message or ""."""
        self._over.set()
        self.join(seconds)
        return f"no answer within {seconds:g} s" if self.is_alive() else self._problem


def _state(run: Path, settings: TrackerSettings) -> dict[str, Any]:
    """The recorded state, if it is of the same tracker; else a new state. Its key is recorded before anything is sent."""
    where = [settings.writer, settings.address, settings.experiment]
    try:
        state: dict[str, Any] = json.loads((run / FILE).read_text(encoding="utf-8"))
        if state["where"] == where:
            return state
    except (OSError, ValueError, KeyError, TypeError):
        pass
    state = {"where": where, "key": uuid.uuid4().hex, "run": "", "epoch": 0, "sent": ""}
    _note(run, state)
    return state


def _note(run: Path, state: Mapping[str, Any]) -> None:
    write_atomically(run / FILE, json.dumps(state, indent=1).encode() + b"\n")


def _about(run: Path) -> tuple[str, dict[str, Any], dict[str, str]]:
    """Name, parameters and tags of a run."""
    settings = json.loads((run / "settings.json").read_text(encoding="utf-8"))
    manifest = json.loads((run / "manifest.json").read_text(encoding="utf-8"))
    settings.pop("tracker", None)
    resolved = {f"resolved.{name}": value for name, value in manifest["resolved"].items()}
    tags = {
        "graphmill.fingerprint": str(manifest["fingerprint"]),
        "graphmill.data": str(manifest["data"]["content_hash"]),
        "graphmill.run_dir": str(run.resolve()),
        "graphmill.machine": socket.gethostname(),
        **{f"graphmill.{name}": str(value) for name, value in manifest["versions"].items()},
    }
    return f"{settings['system']} {run.name[:8]}", {**flat(settings), **resolved}, tags


def _points(record: Mapping[str, Any]) -> Iterator[Point]:
    """The points of one epoch's curves. Values that are not finite are left out."""
    now, values = time.time(), {name: record[name] for name in _NUMBERS if name in record}
    for table, prefix in _TABLES.items():
        values |= {f"{prefix}/{name}": value for name, value in record.get(table, {}).items()}
    for name, value in values.items():
        if math.isfinite(number := float(value)):
            yield Point(name, number, int(record["epoch"]), now)


def _results(run: Path) -> tuple[dict[str, float], dict[str, str]]:
    """Final figures, and the paths of the files: the tracker gets no copies."""
    report = json.loads((run / "report.json").read_text(encoding="utf-8"))
    figures = {f"final/{name}": value for name, value in report["metrics"].items()}
    figures |= {name: report[name] for name in ("best_epoch", "epochs_done", "seconds", "peak_memory_bytes")}
    numbers = {name: float(value) for name, value in figures.items() if isinstance(value, int | float)}
    tags = {"graphmill.reason": str(report["reason"])}
    with contextlib.suppress(OSError, ValueError, KeyError):
        folder = export_folder(run)
        exported = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
        for name, about in exported["files"].items():
            tags[f"artifact.{name}"] = f"{(folder / name).resolve()} sha256:{about['sha256']}"
    return {name: value for name, value in numbers.items() if math.isfinite(value)}, tags


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
