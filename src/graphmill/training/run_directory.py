"""The directory of a run: its layout, lock, atomic JSON files and logs, and the removal of old runs.

``settings.json``, ``manifest.json``, ``report.json``, ``metrics.jsonl``, ``train.log``, ``val.log``,
``checkpoints/``, ``embeddings/``, ``tensorboard/``. It must be on a local disk, and has one writer at a time. The
modules that write the JSON files define their content.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from graphmill.atomic_files import os_error_in_a_sentence, remove_parts, write_atomically
from graphmill.errors import ResourceError, RunLockedError
from graphmill.evaluation.json_values import readable
from graphmill.locks import LOCK, locked
from graphmill.training.metrics_log import WRITE_AGAIN, MetricsLog
from graphmill.training.run_files import SEALED, read_run_file
from graphmill.verified_files import sealed

_PRUNED = ".pruned-"
_logger = logging.getLogger(__name__)


class RunDirectory:
    """Paths and files of one run. The constructor touches no file; :meth:`create` and :meth:`lock` do."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self.checkpoints = self.path / "checkpoints"
        """The folder of the ``CheckpointStore``."""
        self.embeddings = self.path / "embeddings"
        """The folder of exports; it is complete when it has a ``manifest.json``."""
        self.tensorboard = self.path / "tensorboard"
        """The folder of TensorBoard's event files."""
        self.metrics = MetricsLog(self.path / "metrics.jsonl")
        self._logs: dict[str, logging.Logger] = {}

    def create(self) -> RunDirectory:
        """Make the directory and its folders if they are missing.

        Raises:
            ResourceError: it cannot be made or written.
        """
        with os_error_in_a_sentence(f"the run directory {self.path} cannot be made", "choose another output directory"):
            for folder in (self.path, self.checkpoints, self.embeddings, self.tensorboard):
                folder.mkdir(parents=True, exist_ok=True)
        return self

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the lock of the only writer. The system releases it whenever and however the process ends.

        Raises:
            RunLockedError: another process (or another lock of this one) is writing; the message names it.
            ResourceError: the directory cannot be written, or its file system has no locks.
        """
        self.create()
        with locked(self.path, f"the run directory {self.path}"):
            _clear(self.path)
            try:
                yield
            finally:
                self.close()

    def write_json(self, name: str, value: Any) -> Path:
        """Replace ``name`` (such as "manifest.json") by ``value``, durably and in one step; returns its path. Its folder is
        made.

        Raises:
            ResourceError: it could not be written; the file that was there is untouched.
        """
        path = self.path / name
        content = sealed(readable(value)) if name in SEALED else readable(value)
        text = json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
        with os_error_in_a_sentence(f"cannot write {path}", WRITE_AGAIN):
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(path, text.encode())
        return path

    def read_json(self, name: str) -> Any:
        """Read a file that :meth:`write_json` wrote.

        Raises:
            InputError: there is no such file, or it is damaged (``run_files.py``).
        """
        return read_run_file(self.path, name)

    def remove(self, name: str) -> None:
        """Delete a file of the run, if it is there.

        Raises:
            ResourceError: it cannot be removed.
        """
        path = self.path / name
        with os_error_in_a_sentence(f"cannot replace {path}", "remove it, and run the same command again"):
            path.unlink(missing_ok=True)

    def log(self, name: str) -> logging.Logger:
        """A logger that writes to ``<name>.log`` ("train", "val"), each line with its time. It has no parent logger."""
        if name not in self._logs:
            handler = _log_handler(self.path / f"{name}.log")
            handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s", "%Y-%m-%d %H:%M:%S"))
            self._logs[name] = logging.Logger(f"graphmill.run.{name}", logging.INFO)
            self._logs[name].addHandler(handler)
        return self._logs[name]

    def close(self) -> None:
        """Close the logs and the metrics; writing opens them again."""
        self.metrics.close()
        for logger in self._logs.values():
            for handler in logger.handlers:
                handler.close()
        self._logs.clear()


def _log_handler(path: Path) -> logging.Handler:
    """A handler that writes to the file, or a null handler if it cannot be opened: a run does not fail for its log."""
    try:
        return _QuietFileHandler(path, encoding="utf-8")
    except OSError as error:
        _logger.warning("%s cannot be written: %s", path, error.strerror)
        return logging.NullHandler()


class _QuietFileHandler(logging.FileHandler):
    """Prints no traceback per line on a full disk. The next checkpoint reports it in one message."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - logging's name
        pass


# -- old runs --------------------------------------------------------------------------------------------------------


def prune_runs(root: Path, keep: int, protect: set[str]) -> list[Path]:
    """Remove all but the ``keep`` newest run directories directly under ``root``; returns those that were removed.

    It never removes the names in ``protect``, the target of a symbolic link in ``root``, a locked run, or the newest
    good run (with complete embeddings, or a final checkpoint). It touches no other directories.
    """
    if not root.is_dir():
        return []
    for leftover in root.glob(f"{_PRUNED}*"):  # left by a removal that was interrupted
        shutil.rmtree(leftover, ignore_errors=True)
    runs = sorted((path for path in root.iterdir() if _is_run(path)), key=lambda path: (_written(path), path.name))
    for path in runs:
        _clear(path)
    spared = set(protect) | {path.name for path in runs[max(len(runs) - max(keep, 0), 0) :]}
    spared |= {path.resolve().name for path in root.iterdir() if path.is_symlink()}
    good = next((path.name for path in reversed(runs) if _is_good(path)), None)
    return [path for path in runs if path.name not in spared and path.name != good and _remove(path)]


def _clear(run: Path) -> None:
    """Remove what killed writers left in a run and its folders."""
    for folder in (run, *filter(Path.is_dir, run.iterdir())):
        remove_parts(folder)


def _is_run(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink() and not path.name.startswith(".") and (path / LOCK).exists()


def _written(path: Path) -> int:
    names = ("settings.json", "manifest.json", "metrics.jsonl", "report.json")
    return max((file.stat().st_mtime_ns for file in map(path.joinpath, names) if file.exists()), default=0)


def _is_good(path: Path) -> bool:
    if any((path / folder / "manifest.json").exists() for folder in ("embeddings", "scorer")):
        return True
    from graphmill.training.checkpoint import CheckpointStore  # imports torch, which most calls do not need

    return any(info.final for info in CheckpointStore(path / "checkpoints").list())


def _remove(path: Path) -> bool:
    """Rename the run first, under its lock, so that an interrupted removal leaves nothing that looks like a run."""
    aside = path.with_name(_PRUNED + path.name)
    try:
        with RunDirectory(path).lock():
            os.replace(path, aside)
    except RunLockedError:
        return False
    except (OSError, ResourceError) as error:
        _logger.warning("the old run directory %s could not be removed: %s", path, error)
        return False
    shutil.rmtree(aside, ignore_errors=True)
    return True
